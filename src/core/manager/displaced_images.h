#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/manager/state.h"

namespace heddle::core::manager {

/// Images that hosts would drop for further ones. A host that has once dropped one is full: each
/// that comes has others go, now or with the next request. It looks at the state once: a pass makes
/// one for itself.
class DisplacedImages {
 public:
  explicit DisplacedImages(const State& state) : state_(state) {}

  /// What it costs others [s] if the images of these come to the host that all of them are on: for
  /// each image that goes for it, the least recently used first, what losing that is worth. 0 where
  /// the host has what it takes, or is not full.
  [[nodiscard]] double worth(std::span<const ShardPlace> places);

 private:
  struct Image {
    ModelId model{};
    std::uint64_t bytes = 0;
  };

  /// By host, the least recently used first.
  [[nodiscard]] std::map<HostId, std::vector<Image>> cached_images() const;

  const State& state_;
  std::optional<std::map<HostId, std::vector<Image>>> images_{};
};

}  // namespace heddle::core::manager
