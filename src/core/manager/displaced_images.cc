#include "core/manager/displaced_images.h"

#include <algorithm>
#include <tuple>

#include "core/manager/models.h"
#include "core/manager/value.h"

namespace heddle::core::manager {
namespace {

/// Of the images of these, what the host lacks.
std::uint64_t bytes_lacking(const State& state, std::span<const ShardPlace> places, HostId host) {
  std::uint64_t lacking = 0;
  for (const ShardPlace& place : places) {
    const ModelState& model = state.models.at(place.model);
    const auto here = model.images.find(host);
    const bool there = here != model.images.end() && here->second.bytes >= model.config.image_bytes;
    lacking += there ? 0 : model.config.image_bytes;
  }
  return lacking;
}

}  // namespace

std::map<HostId, std::vector<DisplacedImages::Image>> DisplacedImages::cached_images() const {
  std::map<HostId, std::vector<Image>> images;
  for (const auto& [id, model] : state_.models) {
    for (const auto& [host, image] : model.images) {
      if (image.cached) {
        images[host].push_back({.model = id, .bytes = image.bytes});
      }
    }
  }
  for (auto& [host, of_host] : images) {
    std::ranges::sort(of_host, {}, [&](const Image& image) {
      return std::tuple(state_.models.at(image.model).last_used, image.model);
    });
  }
  return images;
}

double DisplacedImages::worth(std::span<const ShardPlace> places) {
  const HostId host = host_of(places.front().device);
  const std::uint64_t lacking =
      state_.full_hosts.contains(host) ? bytes_lacking(state_, places, host) : 0;
  if (lacking > 0 && !images_) {
    images_ = cached_images();
  }
  std::uint64_t freed = 0;
  double lost = 0;
  for (const Image& image : lacking > 0 ? (*images_)[host] : std::vector<Image>()) {
    if (freed < lacking) {
      freed += image.bytes;
      lost += image_worth(state_, state_.models.at(image.model), host);
    }
  }
  return lost;
}

}  // namespace heddle::core::manager
