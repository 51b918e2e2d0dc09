#include "engine/mirror.h"

#include <bit>

namespace heddle::engine {

Result<void> Mirror::send(device::Stream& stream) {
  // Never empty, so that there is an address for what is empty.
  const std::size_t wanted = values_.size() + reserved_ + kAlignment;
  if (device_memory_.bytes() < wanted) {
    if (const auto over = stream.synchronize(); !over) {
      return over.error();  // What is enqueued may refer to what is given up here.
    }
    // Twice as much as before, so that a growing batch does not make memory in each step.
    const std::size_t bytes = std::bit_ceil(wanted);
    Result<device::Buffer> host = device_.allocate(device::Place::kHost, bytes);
    if (!host) {
      return host.error();
    }
    Result<device::Buffer> memory = device_.allocate(device::Place::kDevice, bytes);
    if (!memory) {
      return memory.error();
    }
    host_ = std::move(*host);
    device_memory_ = std::move(*memory);
  }
  if (!values_.empty()) {
    std::memcpy(host_.data(), values_.data(), values_.size());
    stream.copy(device_memory_.data(), host_.data(), values_.size());
  }
  return {};
}

}  // namespace heddle::engine
