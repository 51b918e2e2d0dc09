#pragma once

#include "core/manager/parts.h"

namespace heddle::core::manager {

/// What becomes of external engines, as hosts and gateways say.
class ExternalEngines {
 public:
  explicit ExternalEngines(State& state) : state_(state) {}

  void hear(const Parts& core, const EngineSaid& said);
  void hear(const Parts& core, const RequestUnanswered& unanswered);

 private:
  void serves(const Parts& core, const Instance& engine, const EngineSaid& said);
  void left(const Parts& core, const Instance& engine, const EngineSaid& said);
  void lost(const Parts& core, const Instance& engine, const EngineSaid& said);

  State& state_;
};

}  // namespace heddle::core::manager
