#pragma once

#include <vector>

#include "sim/planes/support.h"

namespace heddle::sim {

enum class MuxKind : std::uint8_t {
  kQuotas,   ///< MuxServe.
  kElastic,  ///< MuxServe++, as Prism's authors compare with.
};

/// MuxServe: models are put together on GPUs once, by offline rates; each has the smallest share of
/// the SMs that decodes at its rate and a quota of KV, which follows use every few seconds. Weights
/// never move. MuxServe++ has the same placement, KV pages for whoever comes first, and all SMs for
/// all. Flag: `period` [s] (5) between two looks at the quotas.
class MuxServePlane final : public ControlPlane {
 public:
  MuxServePlane(MuxKind kind, PlaneInputs inputs, Flags& flags)
      : kind_(kind), inputs_(std::move(inputs)), period_(from_seconds(flags.number("period", 5))) {}
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void place(const World& world, Actions& actions);
  void adjust_quotas(const World& world, Actions& actions, const Gpu& gpu);
  [[nodiscard]] const OfflineDemand& demand(ModelId model) const;

  MuxKind kind_;
  PlaneInputs inputs_;
  Duration period_;
  RequestQueues queues_{};
  std::vector<StartSpec> placed_{};
};

/// The part of a GPU's time [0, ...) that a model's offline rate takes with `percent` of the SMs
/// for decoding, in batches of `batch`: rate * (prefill + output * step / batch).
[[nodiscard]] double mux_load(const World& world,
                              ModelId model,
                              const OfflineDemand& demand,
                              std::int64_t batch,
                              std::int64_t percent);

}  // namespace heddle::sim
