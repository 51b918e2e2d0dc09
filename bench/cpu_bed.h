#pragma once

// A CPU device whose pages hold a model of random weights, as a worker would have it.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "device/cpu/cpu_device.h"
#include "memory/page_pool.h"
#include "memory/window.h"
#include "ops/bf16.h"
#include "spec/dtype.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

namespace heddle::bench {

/// Fills a tensor: matrices with small random numbers, norms with ones, scales with what makes int8
/// as small.
inline void fill(const store::ImageTensor& tensor, std::byte* image, Rng& rng) {
  constexpr float kLargest = 0.035F;
  std::byte* data = image + tensor.offset;
  const std::int64_t count = tensor.rows * tensor.columns;
  if (tensor.dtype == spec::DType::kF32) {
    std::fill_n(
        reinterpret_cast<float*>(data), count, tensor.sources.empty() ? kLargest / 127.0F : 1.0F);
    return;
  }
  if (spec::is_blocks(tensor.dtype)) {
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
      data[i] = static_cast<std::byte>(rng.next() >> 59U);  // So that float16 is small.
    }
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t draw = rng.next();
    if (tensor.dtype == spec::DType::kI8) {
      data[i] = static_cast<std::byte>(draw >> 56U);
    } else {
      reinterpret_cast<std::uint16_t*>(data)[i] =
          ops::to_bf16((static_cast<float>(draw >> 40U) * 0x1p-23F - 1.0F) * kLargest);
    }
  }
}

/// The device, with the pages of the image and so many others, and the image in its window.
class CpuBed {
 public:
  static constexpr std::size_t kPageBytes = 2U << 20U;
  static constexpr memory::OwnerId kWeightsLease{1};

  CpuBed(const store::ImageLayout& layout, std::int64_t other_pages, const std::vector<int>& cores)
      : image_pages_(static_cast<std::int64_t>(store::pages_for(layout.bytes, kPageBytes))),
        device_(make_arena(image_pages_ + other_pages), {.cores = cores}),
        pool_(device_, all_pages(image_pages_ + other_pages)),
        window_(make_window(layout)) {}

  [[nodiscard]] device::CpuDevice& device() { return device_; }
  [[nodiscard]] memory::PagePool& pool() { return pool_; }
  /// Where the image is.
  [[nodiscard]] std::byte* image() const { return window_.base(); }

 private:
  static device::Arena make_arena(std::int64_t pages) {
    return device::Arena::create(
               {.page_bytes = kPageBytes, .page_count = static_cast<std::uint64_t>(pages)})
        .value();
  }
  static std::vector<device::PageId> all_pages(std::int64_t count) {
    std::vector<device::PageId> pages;
    for (std::int64_t i = 0; i < count; ++i) {
      pages.emplace_back(static_cast<std::uint64_t>(i));
    }
    return pages;
  }
  memory::Window make_window(const store::ImageLayout& layout) {
    const auto pages = pool_.take(kWeightsLease, image_pages_).value();
    auto window =
        memory::Window::create(device_, static_cast<std::size_t>(image_pages_) * kPageBytes)
            .value();
    HEDDLE_CHECK(window.map(pages, device::Access::kReadWrite).has_value());
    Rng rng(1);
    for (const store::ImageTensor& tensor : layout.tensors) {
      fill(tensor, window.base(), rng);
    }
    return window;
  }

  std::int64_t image_pages_;
  device::CpuDevice device_;
  memory::PagePool pool_;
  memory::Window window_;
};

}  // namespace heddle::bench
