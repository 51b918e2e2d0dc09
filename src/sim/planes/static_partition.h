#pragma once

#include "sim/planes/support.h"

namespace heddle::sim {

/// Several models share each GPU in slices that never change: weights and a fixed part of what they
/// leave for KV, by offline rate times KV bytes. A full slice queues or preempts though its
/// neighbours are empty. Flag `mig`: compute is cut in the same parts, instead of shared.
class StaticPartitionPlane final : public ControlPlane {
 public:
  StaticPartitionPlane(PlaneInputs inputs, Flags& flags)
      : inputs_(std::move(inputs)), mig_(flags.on("mig", false)) {}
  [[nodiscard]] ComputeSharing compute_sharing() const override {
    return mig_ ? ComputeSharing::kIndependent : ComputeSharing::kAddUp;
  }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void place(const World& world, Actions& actions);

  PlaneInputs inputs_;
  bool mig_;
  RequestQueues queues_{};
  std::vector<StartSpec> placed_{};
};

/// Pages of KV per GPU, for models that are placed: each GPU's rest in proportion to the models'
/// offline rate times KV bytes of a request; at least one request of mean length each.
[[nodiscard]] std::vector<std::int64_t> divide_kv(const World& world,
                                                  const PlaneInputs& inputs,
                                                  const std::vector<std::vector<GpuId>>& placed);

/// KV pages of one request of the model's mean length, but of 2048 tokens where nothing is known.
[[nodiscard]] std::int64_t typical_kv(const World& world, const PlaneInputs& inputs, ModelId model);

}  // namespace heddle::sim
