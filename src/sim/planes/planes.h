#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/control.h"

namespace heddle::sim {

/// What a model's part of a workload is as a whole. Only policies that plan offline may look.
struct OfflineDemand {
  double requests_per_second = 0;
  double input_tokens = 0;   ///< Mean.
  double output_tokens = 0;  ///< Mean.
};

struct PlaneInputs {
  std::vector<OfflineDemand> demand{};         ///< By model.
  std::map<std::string, std::string> flags{};  ///< As `policy:flag=value` has them.
};

struct PlaneEntry {
  std::string_view name;
  std::string_view about;
  std::string_view flags;  ///< What it understands, for people.
};

/// Every policy set there is, baselines first.
[[nodiscard]] std::span<const PlaneEntry> plane_entries();

/// A policy set by name. kNotFound names those there are; kInvalidArgument: a flag it does not
/// have, or a value that is not a number.
Result<std::unique_ptr<ControlPlane>> make_plane(std::string_view name, const PlaneInputs& inputs);

}  // namespace heddle::sim
