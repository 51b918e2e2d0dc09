#include "engine/mirror.h"

#include <algorithm>
#include <bit>

#include "ops/send.h"

namespace heddle::engine {

Result<void> Mirror::send(ops::OpContext& context) {
  // Never empty, so that there is an address for what is empty.
  const std::size_t wanted = values_.size() + reserved_ + kAlignment;
  if (host_.bytes() < wanted || memory_->inputs.bytes() < wanted) {
    if (const auto over = context.stream.synchronize(); !over) {
      return over.error();  // What is enqueued may refer to what is given up here.
    }
    // Twice as much as before, so that a growing batch does not make memory in each step.
    const std::size_t bytes = std::bit_ceil(std::max(wanted, kBytesMin));
    const auto grow = [&](device::Buffer& buffer, device::Place place) -> Result<void> {
      if (buffer.bytes() >= bytes) {
        return {};
      }
      Result<device::Buffer> made = device_.allocate(place, bytes);
      if (!made) {
        return made.error();
      }
      buffer = std::move(*made);
      return {};
    };
    Result<void> grown = grow(host_, device::Place::kHost);
    grown = grown ? grow(memory_->inputs, device::Place::kDevice) : grown;
    if (!grown) {
      return grown;
    }
  }
  if (!values_.empty()) {
    std::memcpy(host_.data(), values_.data(), values_.size());
    ops::send(context,
              {.source = host_.data(), .target = memory_->inputs.data(), .bytes = values_.size()});
  }
  return {};
}

}  // namespace heddle::engine
