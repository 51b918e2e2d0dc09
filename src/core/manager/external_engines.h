#pragma once

#include "core/manager/parts.h"

namespace heddle::core::manager {

/// What becomes of external engines, as hosts and gateways say. An engine that several hosts have
/// is to be at one of them.
class ExternalEngines {
 public:
  explicit ExternalEngines(State& state) : state_(state) {}

  void hear(const Parts& core, const EngineSaid& said);
  void hear(const Parts& core, const EngineKv& said);
  void hear(const Parts& core, const RequestUnanswered& unanswered);
  /// The engines of the host run on, perhaps. Their requests are lost until their fronts say what
  /// became of them, or the host is heard of again.
  void hear(const Parts& core, const HostLost& lost);
  /// Fronts have said anew where requests are: counts those that stand still with their engine.
  void count_frozen();

 private:
  void count_frozen(ModelId model);
  void serves(const Parts& core, const Instance& engine, const EngineSaid& said);
  void left(const Parts& core, const Instance& engine, const EngineSaid& said);
  void lost(const Parts& core, const Instance& engine, const EngineSaid& said);

  State& state_;
};

}  // namespace heddle::core::manager
