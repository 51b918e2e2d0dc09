#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/test_places.h"
#include "device/registry.h"
#include "memory/cached_pages.h"
#include "memory/page_pool.h"
#include "memory/window.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

namespace heddle::engine {

constexpr memory::OwnerId kWeightsLease{1};
constexpr memory::OwnerId kKvLease{2};

/// A model whose image is in pages of the test's device, as a worker would have it.
struct LoadedModel {
  spec::ModelSpec spec{};
  store::ImageLayout layout{};
  std::vector<device::PageId> pages{};
  memory::Window window;
};

/// A small device with its page pool, and models loaded into it: what tests of the engine run on. A
/// CPU unless said otherwise; then nothing is faked.
class TestHost {
 public:
  explicit TestHost(std::uint64_t page_count = 128,
                    std::size_t page_bytes = std::size_t{64} << 10U,
                    device::DeviceOptions options = device::CpuDeviceOptions{})
      : device_(device::make_device(options, make_arena(page_count, page_bytes)).value()),
        pool_(*device_, all_pages(page_count)) {}

  [[nodiscard]] device::Device& device() { return *device_; }
  [[nodiscard]] memory::PagePool& pool() { return pool_; }
  [[nodiscard]] memory::CachedPages& cached() { return cached_; }

  /// Loads a checkpoint with matrices of `dtype`.
  LoadedModel load(const std::filesystem::path& directory, spec::DType dtype) {
    const auto checkpoint = store::Checkpoint::open(directory);
    HEDDLE_CHECK(checkpoint.has_value());
    return load(checkpoint->tensors, checkpoint->config.model, dtype);
  }
  /// Loads a model, or a shard of one, of which these are the tensors.
  LoadedModel load(const store::TensorSet& tensors,
                   const spec::ModelSpec& spec,
                   spec::DType dtype) {
    store::ImageLayout layout = store::plan_image(spec, dtype);
    const std::size_t page_bytes = device_->properties().page_bytes;
    const auto count = static_cast<std::int64_t>(store::pages_for(layout.bytes, page_bytes));
    auto pages = pool_.take(kWeightsLease, count).value();
    const device::Buffer image =
        device_->allocate(device::Place::kHost, static_cast<std::size_t>(count) * page_bytes)
            .value();
    const auto stream = device_->create_background_stream().value();
    std::vector<std::byte*> addresses;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      addresses.push_back(image.data() + i * page_bytes);
    }
    HEDDLE_CHECK(store::load_image(tensors, layout, {.pages = addresses, .page_bytes = page_bytes})
                     .has_value());
    for (std::size_t i = 0; i < pages.size(); ++i) {
      stream->copy(device_->page_address(pages[i]), addresses[i], page_bytes);
    }
    HEDDLE_CHECK(stream->synchronize().has_value());
    auto window =
        memory::Window::create(*device_, static_cast<std::size_t>(count) * page_bytes).value();
    HEDDLE_CHECK(window.map(pages, device::Access::kRead).has_value());
    return {.spec = spec,
            .layout = std::move(layout),
            .pages = std::move(pages),
            .window = std::move(window)};
  }

 private:
  static device::Arena make_arena(std::uint64_t page_count, std::size_t page_bytes) {
    return device::Arena::create({.page_bytes = page_bytes, .page_count = page_count}).value();
  }
  static std::vector<device::PageId> all_pages(std::uint64_t count) {
    std::vector<device::PageId> pages;
    for (std::uint64_t i = 0; i < count; ++i) {
      pages.emplace_back(i);
    }
    return pages;
  }

  std::unique_ptr<device::Device> device_;
  memory::PagePool pool_;
  memory::CachedPages cached_{};
};

[[nodiscard]] inline std::filesystem::path golden_directory() {
  // Where the tests run is not always where they were built.
  const char* moved = std::getenv("HEDDLE_SOURCE_DIR");
  return std::filesystem::path(moved != nullptr ? moved : places::kSources) / "tests" / "golden";
}

/// The committed golden cases, by name.
[[nodiscard]] inline std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory())) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What `transformers` computed for a golden case.
struct Golden {
  std::vector<TokenId> input_ids{};
  std::vector<TokenId> greedy{};             ///< After the first 16 of input_ids, in float32.
  std::vector<float> logits_f32{};           ///< [tokens, vocab]
  std::vector<std::uint16_t> logits_bf16{};  ///< The same with bfloat16 throughout, or empty.
};

[[nodiscard]] inline Golden read_golden(const std::string& name) {
  auto tensors = store::TensorSet::open_file(golden_directory() / name / "golden.safetensors");
  HEDDLE_CHECK(tensors.has_value());
  const auto read = [&](const char* key, auto& values) {
    const auto* entry = tensors->find(key);
    if (entry != nullptr) {
      values.resize(entry->tensor.bytes / sizeof(values[0]));
      HEDDLE_CHECK(tensors->file_of(*entry)
                       .read(entry->tensor.offset, std::as_writable_bytes(std::span(values)))
                       .has_value());
    }
  };
  Golden golden;
  read("input_ids", golden.input_ids);
  read("greedy", golden.greedy);
  read("logits_f32", golden.logits_f32);
  read("logits_bf16", golden.logits_bf16);
  return golden;
}

}  // namespace heddle::engine
