#pragma once

#include "core/manager/outbox.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Loads and unloads that operators asked for, until they are answered.
class Tickets {
 public:
  Tickets(State& state, Outbox& out) : state_(state), out_(out) {}

  void ask(const AdminLoad& load);
  void ask(const AdminUnload& unload);
  /// Somebody asks for the model: it may be prewarmed again.
  void welcome(ModelId model);
  /// Answers loads of models that serve, and unloads of models that are gone.
  void answer();
  /// Answers the loads of a model that cannot be had.
  void fail_loads(ModelId model, const Error& error);

 private:
  State& state_;
  Outbox& out_;
};

}  // namespace heddle::core::manager
