#pragma once

// A GPU whose pages hold a model of random weights, as a worker would have it, and engines on it.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "bench/gpu_report.h"
#include "bench/gpu_shapes.h"
#include "bench/shown_as.h"
#include "device/cuda/cuda_device.h"
#include "engine/engine.h"
#include "memory/page_pool.h"
#include "memory/window.h"
#include "ops/bf16.h"
#include "store/image_layout.h"
#include "store/image_loader.h"
#include "worker/mapper.h"

namespace heddle::bench {

constexpr memory::OwnerId kWeightsLease{1};
constexpr memory::OwnerId kKvLease{2};

/// Seconds that `run` takes.
template <class Run>
double seconds_of(const Run& run) {
  const auto began = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// The GPU with all its pages, and the model's image in pages of the host.
class Bed {
 public:
  /// `memory` and `page_bytes` as CudaDeviceOptions has them.
  Bed(const Shape& shape, std::uint64_t memory, std::size_t page_bytes)
      : shape_(shape),
        layout_(store::plan_image(shape.model, shape.dtype)),
        device_(make_device(layout_, memory, page_bytes)),
        pool_(*device_, first_pages(device_->properties().page_count)),
        image_pages_(store::pages_for(layout_.bytes, device_->properties().page_bytes)) {
    if (fits()) {
      fill();
      window_.emplace(make_window());
      pages_ = must(pool_.take(kWeightsLease, static_cast<std::int64_t>(image_pages_)));
    }
  }

  /// Whether the device holds the model and some KV.
  [[nodiscard]] bool fits() const { return image_pages_ + 8 <= device_->properties().page_count; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] const store::ImageLayout& layout() const { return layout_; }
  [[nodiscard]] device::CudaDevice& device() { return *device_; }
  [[nodiscard]] memory::PagePool& pool() { return pool_; }
  [[nodiscard]] memory::Window& window() { return *window_; }
  /// Of the device, that the weights are in; as many as the image takes in the host's.
  [[nodiscard]] const std::vector<PageId>& pages() const { return pages_; }

  /// Another window, of the model's size, with nothing mapped.
  [[nodiscard]] memory::Window make_window() {
    return must(memory::Window::create(*device_, image_pages_ * device_->properties().page_bytes));
  }

  struct Loaded {
    double seconds = 0;  ///< Until all is mapped and copied.
    double mapping = 0;  ///< Of which the host was mapping.
  };
  /// Maps the window and copies the image, by the worker's own way; `tell` is told, in another
  /// thread, how many bytes are there.
  Loaded load(const std::function<void(std::uint64_t)>& tell = {}) {
    return load(*window_, pages_, tell);
  }
  /// The same into another window of make_window(), over as many pages.
  Loaded load(memory::Window& window,
              const std::vector<PageId>& pages,
              const std::function<void(std::uint64_t)>& tell = {}) {
    std::mutex mutex;
    std::condition_variable changed;
    bool opened = false;
    std::uint64_t copied = 0;
    worker::Mapper mapper(*device_,
                          0,
                          {.on_opened =
                               [&](ModelId, const Result<void>& mapped) {
                                 must(mapped);
                                 const std::lock_guard lock(mutex);
                                 opened = true;
                                 if (tell && copied > 0) {
                                   tell(copied);
                                 }
                                 changed.notify_one();
                               },
                           .on_copied =
                               [&](ModelId, std::uint64_t bytes) {
                                 const std::lock_guard lock(mutex);
                                 copied = bytes;
                                 if (tell && opened) {  // Nobody reads where nothing is mapped.
                                   tell(bytes);
                                 }
                                 changed.notify_one();
                               },
                           .on_closed = [](ModelId) {},
                           .on_lost = [](const Error& error) { must(Result<void>(error)); }});
    const double seconds = seconds_of([&] {
      mapper.open({.model = ModelId{1},
                   .window = &window,
                   .pages = pages,
                   .source = first_pages(image_pages_),
                   .image_bytes = layout_.bytes,
                   .ready_bytes = layout_.bytes});
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return opened && copied == layout_.bytes; });
    });
    return {.seconds = seconds, .mapping = to_seconds(mapper.mapping())};
  }

 private:
  static std::vector<PageId> first_pages(std::uint64_t count) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < count; ++i) {
      pages.emplace_back(i);
    }
    return pages;
  }

  static std::unique_ptr<device::CudaDevice> make_device(const store::ImageLayout& layout,
                                                         std::uint64_t memory,
                                                         std::size_t page_bytes) {
    // The host's pages are as large as the device's.
    const std::size_t host_page = page_bytes != 0 ? page_bytes : std::size_t{2} << 20U;
    device::Arena host = must(device::Arena::create(
        {.page_bytes = host_page, .page_count = store::pages_for(layout.bytes, host_page)}));
    return must(
        device::CudaDevice::create({.page_bytes = host_page, .bytes = memory}, std::move(host)));
  }

  /// Small numbers by chance everywhere, from one piece that is twice a page, begun elsewhere for
  /// each page; then ones for the norms and zeros for the biases.
  void fill() {
    const std::size_t page = device_->properties().page_bytes;
    Rng rng(1);
    std::vector<std::uint16_t> piece(page);  // Two bytes each: two pages.
    for (std::uint16_t& number : piece) {
      number = ops::to_bf16((static_cast<float>(rng.next() >> 40U) * 0x1p-23F - 1.0F) * 0.035F);
    }
    std::vector<std::size_t> offsets(image_pages_);
    for (std::size_t& offset : offsets) {
      offset = rng.below(page / 2 / 64) * 64;
    }
    std::vector<std::thread> threads;
    const std::size_t count = std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = t; i < image_pages_; i += count) {
          std::memcpy(device_->host_page_address(PageId{i}), piece.data() + offsets[i], page);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    std::byte* const image = device_->host_page_address(PageId{0});
    for (const store::ImageTensor& tensor : layout_.tensors) {
      if (tensor.dtype == spec::DType::kF32) {
        std::fill_n(reinterpret_cast<float*>(image + tensor.offset),
                    tensor.rows * tensor.columns,
                    tensor.role == store::Role::kQkvBias ? 0.0F : 1.0F);
      }
    }
  }

  Shape shape_;
  store::ImageLayout layout_;
  std::unique_ptr<device::CudaDevice> device_;
  memory::PagePool pool_;
  std::size_t image_pages_;
  std::optional<memory::Window> window_{};
  std::vector<PageId> pages_{};
};

/// An engine over a Bed, with sequences of random tokens. Steps are timed.
class Runner {
 public:
  /// `device` is the bed's or stands for it; `kernels` as engine::EngineOptions has them.
  Runner(Bed& bed, device::Device& device, const ops::KernelTable* kernels = nullptr)
      : bed_(bed),
        engine_(
            must(engine::Engine::create(device,
                                        bed.pool(),
                                        {.max_batch_tokens = std::max(bed.shape().prompt, kLeast),
                                         .run_ahead = kernels == nullptr,
                                         .kernels = kernels}))) {}

  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  /// The bed's weights as one more model, seen through `window`, of which so many bytes are there.
  void add_model(ModelId id, const memory::Window& window, std::uint64_t ready) {
    must(engine_->add_model(id, bed_.shape().model, bed_.layout(), window.base(), kKvLease));
    engine_->set_image_ready(id, ready);
  }
  void add_model(ModelId id, const memory::Window& window) {
    add_model(id, window, bed_.layout().bytes);
  }

  /// A sequence that has computed nothing.
  engine::SequenceId add(ModelId model, std::int64_t tokens) {
    const engine::SequenceId id{++last_};
    engine::SequenceStart start{.id = id, .model = model, .prompt_tokens = tokens};
    Rng rng(last_);
    for (std::int64_t i = 0; i < tokens; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(bed_.shape().model.vocab))));
    }
    start.params.temperature = 0.0F;
    start.params.max_tokens = std::int64_t{1} << 30;
    start.params.ignore_eos = true;
    must(engine_->add_sequence(std::move(start)));
    model_of_[id] = model;
    known_[id] = tokens;
    return id;
  }

  /// Seconds of a step in which each of these computes so many tokens. `again`: the same will be
  /// asked for again, so that the engine may be ahead; the last time it is not said.
  double step(const std::vector<engine::SequenceId>& ids, std::int64_t tokens, bool again = false) {
    policy::StepPlan plan{.batches = {{.model = model_of_.at(ids.front())}},
                          .stable_steps = again ? policy::kStableUntilChange : 1};
    for (const engine::SequenceId id : ids) {
      plan.batches[0].slices.push_back({.sequence = id, .tokens = tokens});
    }
    engine::StepOutcome outcome;
    const double seconds = seconds_of([&] { outcome = must(engine_->run(plan)); });
    HEDDLE_CHECK(outcome.results.size() == ids.size());
    for (const engine::SliceResult& result : outcome.results) {
      known_[result.sequence] += result.token.has_value() ? 1 : 0;
    }
    return seconds;
  }

  /// Computes all tokens of a sequence that has computed none, and so gets one more.
  void compute(engine::SequenceId id) {
    const std::int64_t most = std::max(bed_.shape().prompt, kLeast);
    for (std::int64_t left = known_.at(id); left > 0; left -= most) {
      step({id}, std::min(left, most));
    }
  }

  /// Tokens of a sequence, the one that is to be computed next included.
  [[nodiscard]] std::int64_t known(engine::SequenceId id) const { return known_.at(id); }

 private:
  static constexpr std::int64_t kLeast = 128;  ///< Most that decode together.

  Bed& bed_;
  std::unique_ptr<engine::Engine> engine_;
  std::map<engine::SequenceId, ModelId> model_of_{};
  std::map<engine::SequenceId, std::int64_t> known_{};
  std::uint64_t last_ = 0;
};

}  // namespace heddle::bench
