#pragma once

#include <map>
#include <vector>

#include "policy/weave.h"
#include "sim/planes/dedicated.h"
#include "sim/planes/weaving.h"

namespace heddle::sim {

/// WEAVER: every model has GPUs of its own, and a hot one keeps part of its sequences' KV on the
/// GPU of a cold one in the same server, which runs the attention over it between its own kernels.
/// Flags: `share` (0.45, the paper's; 0: none; -1: chosen every second), `split` (1: the cold
/// model's long kernels are split). Prompts are read where the model decodes, unless it says
/// otherwise.
class WeaverPlane final : public ControlPlane {
 public:
  WeaverPlane(PlaneInputs inputs, Flags& flags)
      : inputs_(inputs),
        dedicated_(std::move(inputs)),
        share_(flags.number("share", 0.45)),
        split_(flags.on("split", true)) {}
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void pair_up(const World& world);
  void adjust(const World& world, Actions& actions);

  PlaneInputs inputs_;
  DedicatedPlane dedicated_;
  double share_;
  bool split_;
  std::map<ReplicaId, ReplicaId> pairs_{};  ///< Hot to cold.
  WeaveWatch watch_{};
};

}  // namespace heddle::sim
