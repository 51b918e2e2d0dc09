#pragma once

#include "sim/planes/support.h"

namespace heddle::sim {

/// Every model has GPUs of its own, for good: one instance each, more for models whose offline rate
/// one instance cannot carry while GPUs are left. They load when time begins, and share nothing. A
/// model that no GPU is left for, or none is large enough, refuses its requests.
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
