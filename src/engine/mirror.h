#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "device/device.h"
#include "ops/context.h"

namespace heddle::engine {

/// What passes that are enqueued on one stream have on the device, by turns: the inputs of one are
/// sent behind all that reads those of the one before. So a step's addresses do not depend on whose
/// turn it is.
struct PassMemory {
  device::Buffer inputs{};   ///< Of their Mirrors.
  device::Buffer sampled{};  ///< i32: the tokens of the pass that was enqueued last.
};

/// A piece of memory on the device and the same piece on the host, between which the small values
/// of a pass go: what it needs is gathered and sent at once, what it gives is fetched. Kept from
/// pass to pass for its memory. Used by one thread.
class Mirror {
 public:
  /// Its side on the device is `memory`, which another mirror on the same stream may share.
  /// `device` outlives it.
  explicit Mirror(device::Device& device,
                  std::shared_ptr<PassMemory> memory = std::make_shared<PassMemory>())
      : device_(device), memory_(std::move(memory)) {}

  /// Forgets everything; the stream has done with it.
  void clear() {
    values_.clear();
    reserved_ = 0;
  }

  /// Takes a copy of `values`, to be sent; returns where they will be.
  template <class T>
  std::size_t add(std::span<const T> values) {
    HEDDLE_CHECK(reserved_ == 0);
    const std::size_t offset = aligned(values_.size());
    values_.resize(offset + values.size_bytes());
    if (!values.empty()) {
      std::memcpy(values_.data() + offset, values.data(), values.size_bytes());
    }
    return offset;
  }
  template <class T>
  std::size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  /// Room for `count` values that the device will write, behind all that was added; not sent.
  template <class T>
  std::size_t reserve(std::size_t count) {
    const std::size_t offset = aligned(values_.size() + reserved_);
    reserved_ = offset + count * sizeof(T) - values_.size();
    return offset;
  }

  /// Makes memory for all that was added and reserved, if there is too little, and enqueues the
  /// way of what was added (ops::send). Where it makes memory it waits for the stream. Fails as
  /// Device::allocate and Stream::synchronize.
  Result<void> send(ops::OpContext& context);
  /// Enqueues the way back of `bytes` at `offset`, at least 1; host() has them once the stream is
  /// synchronised.
  void fetch(device::Stream& stream, std::size_t offset, std::size_t bytes) {
    stream.copy(host_.data() + offset, memory_->inputs.data() + offset, bytes);
  }

  /// On the device, once sent.
  template <class T>
  [[nodiscard]] T* device(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_->inputs.data() + offset);
  }
  /// On the host, once fetched.
  template <class T>
  [[nodiscard]] T* host(std::size_t offset) const {
    return reinterpret_cast<T*>(host_.data() + offset);
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  /// Of the memory of either side, so that it is seldom made anew while sequences grow: each time
  /// all recorded steps are lost, whose addresses it gives.
  static constexpr std::size_t kBytesMin = std::size_t{256} << 10U;

  static std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  device::Device& device_;
  std::vector<std::byte> values_{};
  std::size_t reserved_ = 0;  ///< Bytes behind values_.
  device::Buffer host_{};
  std::shared_ptr<PassMemory> memory_;
};

}  // namespace heddle::engine
