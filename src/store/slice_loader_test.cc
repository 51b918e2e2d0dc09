#include "store/slice_loader.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "spec/block_panels.h"
#include "store/checkpoint.h"
#include "store/test_files.h"
#include "store/test_image.h"

namespace heddle::store {
namespace {

class SliceLoaderTest : public testing::Test {
 protected:
  SliceLoaderTest() {
    write_text(directory_.path() / "config.json", kTinyConfig);
    write_safetensors(
        directory_.path() / "model.safetensors",
        random_model(tiny_model(), rng_, [](std::size_t) { return StoredType::kBf16; }));
    checkpoint_ = Checkpoint::open(directory_.path()).value();
  }
  [[nodiscard]] ImageLayout layout(spec::DType dtype) const {
    return plan_image(checkpoint_.config.model, dtype);
  }
  [[nodiscard]] const TensorSet& tensors() const { return checkpoint_.tensors; }

  Rng rng_{23};
  TempDirectory directory_{};
  Checkpoint checkpoint_{};
  const SliceLoader::Await at_once_{};
};

TEST_F(SliceLoaderTest, ASliceWritesItsBytesAndNoOthers) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    const ImageLayout layout = this->layout(dtype);
    const std::string image = image_of(tensors(), layout);
    for (const ImageSlice& slice : cut_image(tensors(), layout, 3'000)) {
      // What is as it was before either way was not written.
      TestPages low(layout, '\x11');
      TestPages high(layout, '\xEE');
      for (TestPages* pages : {&low, &high}) {
        SliceLoader loader(tensors(), layout, pages->target(), at_once_);
        ASSERT_TRUE(loader.load(slice));
      }
      const ImageTensor& tensor = layout.tensors[slice.tensor];
      const auto row_bytes = spec::row_bytes(tensor.dtype, tensor.columns);
      const auto begin = static_cast<std::int64_t>(tensor.offset) + slice.row * row_bytes;
      std::vector<std::pair<std::int64_t, std::int64_t>> own{
          {begin, begin + slice.rows * row_bytes}};
      if (dtype == spec::DType::kI8 && tensor.dtype == spec::DType::kI8) {
        const auto scales =
            static_cast<std::int64_t>(layout.tensors[slice.tensor + 1].offset) + 4 * slice.row;
        own.emplace_back(scales, scales + 4 * slice.rows);
      }
      for (std::int64_t at = 0; at < std::ssize(image); ++at) {
        const auto i = static_cast<std::size_t>(at);
        const bool mine = std::ranges::any_of(
            own, [at](const auto& range) { return range.first <= at && at < range.second; });
        ASSERT_EQ(low.bytes[i], mine ? image[i] : '\x11') << at;
        ASSERT_EQ(high.bytes[i], mine ? image[i] : '\xEE') << at;
      }
    }
  }
}

TEST_F(SliceLoaderTest, WhatDoesNotComeEndsIt) {
  const ImageLayout layout = this->layout(spec::DType::kF32);
  const std::vector<ImageSlice> slices = cut_image(tensors(), layout, 3'000);
  std::size_t asked = 0;
  const SliceLoader::Await await = [&](std::size_t file, std::uint64_t, std::uint64_t bytes) {
    EXPECT_EQ(file, 0U);
    EXPECT_GT(bytes, 0U);
    return ++asked < 2 ? Result<void>() : Error{Code::kUnavailable, "its host is gone"};
  };
  TestPages pages(layout, '\x11');
  SliceLoader loader(tensors(), layout, pages.target(), await);
  EXPECT_TRUE(loader.load(slices[0]));
  const Result<void> second = loader.load(slices[1]);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "its host is gone");
}

}  // namespace
}  // namespace heddle::store
