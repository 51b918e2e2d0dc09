#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// An image in the host cache that could be dropped: complete, and nobody copies from it.
struct CachedImage {
  ModelId model{};
  std::int64_t pages = 0;
  Instant last_used{};
};

/// The images to drop so that `need_pages` come free: least recently used first, none that the
/// others make unnecessary, and only such as were used before `worth_since`, when what wants the
/// room was used itself. nullopt when all of them are not enough; then none is to be dropped.
/// Pure; independent of the order of `images` (ties by id). O(N log N).
[[nodiscard]] std::optional<std::vector<ModelId>> choose_images_to_drop(
    std::span<const CachedImage> images, std::int64_t need_pages, Instant worth_since);

}  // namespace heddle::policy
