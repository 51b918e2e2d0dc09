#pragma once

// For tests only: images as contiguous bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "store/image_loader.h"
#include "store/image_slices.h"
#include "store/slice_loader.h"

namespace heddle::store {

/// Memory for an image, in pages so small that rows cross their ends, all of one byte.
struct TestPages {
  static constexpr std::size_t kBytes = 192;

  TestPages(const ImageLayout& layout, char filled)
      : bytes(pages_for(layout.bytes, kBytes) * kBytes, filled) {
    for (std::size_t at = 0; at < bytes.size(); at += kBytes) {
      pages.push_back(reinterpret_cast<std::byte*>(bytes.data()) + at);
    }
  }
  [[nodiscard]] ImagePages target() const { return {.pages = pages, .page_bytes = kBytes}; }

  std::string bytes;
  std::vector<std::byte*> pages{};
};

/// The image that slices of about `slice_bytes` make, whichever comes first.
inline std::string made_of_slices(const TensorSet& tensors,
                                  const ImageLayout& layout,
                                  std::uint64_t slice_bytes) {
  TestPages made(layout, '\0');
  std::vector<ImageSlice> slices = cut_image(tensors, layout, slice_bytes);
  Rng rng(slice_bytes);
  for (std::size_t i = slices.size(); i > 1; --i) {
    std::swap(slices[i - 1], slices[rng.below(i)]);
  }
  const SliceLoader::Await at_once{};
  SliceLoader loader(tensors, layout, made.target(), at_once);
  for (const ImageSlice& slice : slices) {
    const Result<void> loaded = loader.load(slice);
    EXPECT_TRUE(loaded) << loaded.error().message;
  }
  made.bytes.resize(layout.bytes);
  return std::move(made.bytes);
}

/// The image that load_image() makes, which is expected to be that of small slices.
inline std::string image_of(const TensorSet& tensors, const ImageLayout& layout) {
  TestPages image(layout, '?');
  const Result<void> loaded = load_image(tensors, layout, image.target());
  EXPECT_TRUE(loaded) << loaded.error().message;
  image.bytes.resize(layout.bytes);
  for (const std::uint64_t slice_bytes : {1U, 700U, 5'000U}) {
    EXPECT_TRUE(made_of_slices(tensors, layout, slice_bytes) == image.bytes)
        << "in slices of " << slice_bytes;
  }
  return std::move(image.bytes);
}

}  // namespace heddle::store
