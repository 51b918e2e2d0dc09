#include "policy/host_cache.h"

#include <algorithm>
#include <tuple>

namespace heddle::policy {

std::optional<std::vector<ModelId>> choose_images_to_drop(std::span<const CachedImage> images,
                                                          std::int64_t need_pages,
                                                          Instant worth_since) {
  std::vector<CachedImage> candidates;
  std::copy_if(
      images.begin(), images.end(), std::back_inserter(candidates), [&](const CachedImage& image) {
        return image.last_used < worth_since;
      });
  std::sort(candidates.begin(), candidates.end(), [](const CachedImage& a, const CachedImage& b) {
    return std::tie(a.last_used, a.model) < std::tie(b.last_used, b.model);
  });
  std::int64_t freed = 0;
  std::vector<CachedImage> chosen;
  for (const CachedImage& image : candidates) {
    if (freed >= need_pages) {
      break;
    }
    freed += image.pages;
    chosen.push_back(image);
  }
  if (freed < need_pages) {
    return std::nullopt;
  }
  // The last one taken may be large enough to spare some before it: keep the most recent of those.
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (freed - chosen[i].pages >= need_pages) {
      freed -= chosen[i].pages;
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::vector<ModelId> drop;
  for (const CachedImage& image : chosen) {
    drop.push_back(image.model);
  }
  return drop;
}

}  // namespace heddle::policy
