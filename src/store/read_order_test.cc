#include "store/read_order.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "store/checkpoint.h"
#include "store/image_loader.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

/// A tiny model in one file, and what load_image() said that it was about to read of it.
struct Read {
  explicit Read(spec::DType dtype) {
    write_text(directory.path() / "config.json", kTinyConfig);
    Rng rng(7);
    write_safetensors(directory.path() / "model.safetensors", plausible_model(tiny_model(), rng));
    const auto checkpoint = Checkpoint::open(directory.path());
    HEDDLE_CHECK(checkpoint.has_value());
    const ImageLayout layout = plan_image(checkpoint->config.model, dtype);
    order = read_order(checkpoint->tensors, layout);
    constexpr std::size_t kPage = 4096;
    std::vector<std::byte> memory(pages_for(layout.bytes, kPage) * kPage);
    std::vector<std::byte*> pages;
    for (std::size_t at = 0; at < memory.size(); at += kPage) {
      pages.push_back(memory.data() + at);
    }
    const Result<void> loaded = load_image(
        checkpoint->tensors,
        layout,
        {.pages = pages, .page_bytes = kPage},
        {.await = [this](
                      std::size_t file, std::uint64_t offset, std::uint64_t bytes) -> Result<void> {
          if (!awaited.empty() && awaited.back().file == file && awaited.back().end == offset) {
            awaited.back().end += bytes;
          } else {
            awaited.push_back({.file = file, .begin = offset, .end = offset + bytes});
          }
          return {};
        }});
    HEDDLE_CHECK(loaded.has_value());
  }

  TempDirectory directory{};
  std::vector<FileBytes> order{};
  std::vector<FileBytes> awaited{};
};

TEST(ReadOrder, IsTheOrderInWhichAnImageIsLoaded) {
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    const Read read(dtype);
    EXPECT_FALSE(read.order.empty());
    EXPECT_EQ(read.order, read.awaited);
  }
}

}  // namespace
}  // namespace heddle::store
