#include "worker/image_parts.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::worker {

std::optional<ImagePart> ImageParts::take(std::uint64_t most,
                                          std::uint64_t limit,
                                          std::uint64_t least) {
  if (!returned_.empty()) {
    ImagePart part = returned_.extract(returned_.begin()).value();
    if (part.bytes() > most) {
      returned_.insert({.begin = part.begin + most, .end = part.end});
      part.end = part.begin + most;
    }
    return part;
  }
  const std::uint64_t end = std::min({bytes_, limit, next_ + most});
  if (end < next_ + std::max<std::uint64_t>(least, 1)) {
    return std::nullopt;
  }
  const ImagePart part{.begin = next_, .end = end};
  next_ = end;
  return part;
}

bool ImageParts::has(std::uint64_t limit, std::uint64_t least) const {
  return !returned_.empty() || std::min(bytes_, limit) >= next_ + std::max<std::uint64_t>(least, 1);
}

void ImageParts::put_in_place(const ImagePart& part) {
  HEDDLE_CHECK(part.begin < part.end && part.end <= next_ && part.begin >= in_place_);
  ahead_.emplace(part.begin, part.end);
  for (auto first = ahead_.begin(); first != ahead_.end() && first->first == in_place_;
       first = ahead_.erase(first)) {
    in_place_ = first->second;
  }
}

void ImageParts::give_back(const ImagePart& part) {
  HEDDLE_CHECK(part.begin < part.end && part.end <= next_ && part.begin >= in_place_);
  returned_.insert(part);
}

}  // namespace heddle::worker
