#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/manager/state.h"

namespace heddle::core::manager {

/// A model that several hosts are to fetch together, each the layers of one stage.
struct CutStart {
  ModelId cut{};
  DeviceId leader{};
  std::vector<ShardPlace> followers{};  ///< The further stages, in order.
  std::string because{};                ///< For people.
};

/// Whether a model that requests wait for, and whose files every host has yet to fetch, starts in
/// stages, and where: HydraServe, Algorithm 1, over the devices where nothing runs and the networks
/// as they are (policy/cold_start.h). nullopt: on one device, as any other model.
[[nodiscard]] std::optional<CutStart> choose_cut_start(const State& state, ModelId model);

}  // namespace heddle::core::manager
