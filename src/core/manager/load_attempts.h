#pragma once

#include <cstdint>

#include "core/manager/request_queues.h"
#include "core/manager/state.h"
#include "core/manager/tickets.h"

namespace heddle::core::manager {

/// How often the load of a model has failed, and when it is tried again.
class LoadAttempts {
 public:
  LoadAttempts(State& state, RequestQueues& queues, Tickets& tickets)
      : state_(state), queues_(queues), tickets_(tickets) {}

  /// A load failed: it is tried again after a pause, or requests and operators that wait for the
  /// model hear that it cannot be had.
  void failed(ModelId model, const Error& reason);
  /// The model serves.
  void succeeded(ModelId model);
  /// A worker was killed while it loaded the model, or a shard of it. True when that has happened
  /// so often that it counts as a load that failed.
  [[nodiscard]] bool killed(ModelId model);
  /// An operator, who has perhaps put right what failed, asks for it: it is loaded at once.
  void forgive(ModelId model);
  /// Fails the requests that wait for the model and need more than so many tokens; at 0, also the
  /// loads that operators asked for.
  void give_up(ModelId model, const Error& error, std::int64_t longer_than = 0);

 private:
  State& state_;
  RequestQueues& queues_;
  Tickets& tickets_;
};

}  // namespace heddle::core::manager
