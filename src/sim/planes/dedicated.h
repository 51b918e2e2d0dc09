#pragma once

#include "sim/planes/support.h"

namespace heddle::sim {

/// Every model has GPUs of its own, for good: one instance each, more for models whose offline rate
/// one instance cannot carry while GPUs are left. Nothing is loaded, nothing is shared. A model
/// for which no GPU is left refuses its requests.
class DedicatedPlane final : public ControlPlane {
 public:
  explicit DedicatedPlane(PlaneInputs inputs) : inputs_(std::move(inputs)) {}
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void place(const World& world, Actions& actions);

  PlaneInputs inputs_;
  RequestQueues queues_{};
  std::vector<StartSpec> placed_{};
};

}  // namespace heddle::sim
