#pragma once

#include <optional>
#include <string>
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
};

/// Whether a model that requests wait for, and whose files every host has yet to fetch, starts in
/// stages, and where: HydraServe, Algorithm 1, over the devices where nothing runs and the networks
/// as they are (policy/cold_start.h). Stages share their devices with what stays there. nullopt: on
/// one device, as any other model.
[[nodiscard]] std::optional<CutStart> choose_cut_start(const State& state, ModelId model);

}  // namespace heddle::core::manager
