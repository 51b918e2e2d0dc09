#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/manager/state.h"

namespace heddle::core::manager {

/// A model that several hosts are to fetch together, each the layers of one stage.
struct CutStart {
  /// A stage's device, and who is idle there and goes for it.
  struct Place {
    ShardPlace stage{};
    std::vector<ModelId> victims{};
  };
  std::vector<Place> places{};  ///< In order: the first stage leads, and is the cut.
  std::string because{};        ///< For people.
  Duration ttft{};              ///< As StartPlan has it, with the next two.
  std::optional<Duration> tpot{};
  double lost = 0;
};

/// What there is to say of starting a model in stages.
struct CutChoice {
  std::optional<CutStart> start{};  ///< Where that is better than one device.
  /// Where there is none: why not, for people, and when the first token would come, if that is
  /// known. Empty of a model that has no stages, or that no request waits for.
  std::string_view why_not{};
  std::optional<Duration> ttft{};
};

/// Whether a model that requests wait for, and whose files every host has yet to fetch, starts in
/// stages, and where: HydraServe, Algorithm 1, over the devices where nothing runs and the networks
/// as they are (policy/cold_start.h). Stages share their devices with what stays there. No start:
/// on one device, as any other model.
[[nodiscard]] CutChoice look_at_cuts(const State& state, ModelId model);
[[nodiscard]] std::optional<CutStart> choose_cut_start(const State& state, ModelId model);

}  // namespace heddle::core::manager
