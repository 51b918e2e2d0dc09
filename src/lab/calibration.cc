#include "lab/calibration.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "core/worker_core.h"
#include "device/cuda/cuda_device.h"
#include "device/registry.h"
#include "memory/window.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"
#include "worker/device_executor.h"

namespace heddle::lab {

namespace {

constexpr ModelId kServed{1};
constexpr ModelId kCopied{2};

/// What is measured, as far as device and model allow.
struct Sizes {
  std::vector<std::int64_t> chunks{};
  std::vector<std::int64_t> cached{};
  std::vector<std::int64_t> batches{};
  std::vector<std::int64_t> contexts{};
  std::vector<std::int64_t> maps{};
  std::int64_t batch_tokens = 0;
};

Sizes sizes_of(const CalibrationOptions& options) {
  Sizes sizes = options.gpu ? Sizes{.chunks = {16, 128, 512, 1024, 2048},
                                    .cached = {0, 1024},
                                    .batches = {1, 4, 16, 64, 128},
                                    .contexts = {32, 256, 1024, 4096},
                                    .maps = {1, 8, 32, 256, 1024},
                                    .batch_tokens = 2048}
                            : Sizes{.chunks = {16, 64, 128, 256, 448},
                                    .cached = {0, 32},
                                    .batches = {1, 4, 16},
                                    .contexts = {32, 256},
                                    .maps = {1, 8, 32},
                                    .batch_tokens = 512};
  if (options.max_batch_tokens > 0) {
    sizes.batch_tokens = options.max_batch_tokens;
  }
  return sizes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What the mapper's thread reports.
class Reports {
 public:
  worker::DeviceExecutor::Handlers handlers() {
    return {.on_event =
                [this](const core::WorkerEvent& event) {
                  const std::lock_guard lock(mutex_);
                  if (const auto* progress = std::get_if<core::CopyProgress>(&event)) {
                    copied_ = progress->bytes;
                  } else if (const auto* failed = std::get_if<core::OpenFailed>(&event)) {
                    failure_ = failed->error;
                  } else if (std::holds_alternative<core::ModelClosed>(event)) {
                    closed_ = true;
                  }
                  changed_.notify_all();
                },
            .on_report = [](const core::WorkerReport&) {}};
  }

  void begin() {
    const std::lock_guard lock(mutex_);
    copied_ = 0;
    closed_ = false;
    failure_.reset();
  }
  /// Whether so much has been copied by now.
  [[nodiscard]] bool copied(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return copied_ >= bytes || failure_.has_value();
  }
  Result<void> wait_copied(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return copied_ >= bytes || failure_.has_value(); });
    return failure_ ? Result<void>(*failure_) : Result<void>();
  }
  void wait_closed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_; });
  }

 private:
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::uint64_t copied_ = 0;  // Guarded by mutex_, as all below.
  bool closed_ = false;
  std::optional<Error> failure_{};
};

/// The device with its executor, and an image in memory of the host's.
class Bench {
 public:
  /// `records`: whether steps may be recorded, where the device can.
  static Result<std::unique_ptr<Bench>> create(const CalibrationOptions& options,
                                               bool records = true) {
    auto checkpoint = store::Checkpoint::open(options.directory);
    if (!checkpoint) {
      return checkpoint.error();
    }
    store::ImageLayout layout = store::plan_image(checkpoint->config.model, options.dtype);
    const auto image = store::pages_for(layout.bytes, options.page_bytes);
    const std::uint64_t pages = options.memory / options.page_bytes;
    if (pages < 2 * image + 8) {
      return Error{.code = Code::kResourceExhausted,
                   .message = "calibrate: a memory of " + std::to_string(pages) +
                              " pages does not hold the model, of " + std::to_string(image) +
                              ", twice and some KV"};
    }
    auto device = make_device(options, pages, image, records);
    if (!device) {
      return device.error();
    }
    std::unique_ptr<Bench> bench(
        new Bench(options, checkpoint->config.model, std::move(layout), std::move(*device)));
    const Result<void> ready = bench->load(checkpoint->tensors, pages);
    return ready ? Result<std::unique_ptr<Bench>>(std::move(bench)) : ready.error();
  }

  [[nodiscard]] const spec::ModelSpec& model() const { return model_; }
  [[nodiscard]] std::uint64_t image_bytes() const { return layout_.bytes; }
  [[nodiscard]] device::Device& device() { return *device_; }
  /// The device's first pages, of which nothing is used yet: to be mapped and left as they are.
  [[nodiscard]] std::vector<PageId> some_pages(std::int64_t count) const {
    return {pool_.begin(), pool_.begin() + std::min<std::int64_t>(count, std::ssize(pool_))};
  }

  /// Copies the image to the device; `meanwhile` is called again and again until it is there.
  Result<Duration> copy(ModelId model, const std::function<Result<void>()>& meanwhile) {
    reports_.begin();
    const Instant began = steady_now();
    const Result<void> opened = carry_out(core::OpenModel{.model = model,
                                                          .source = core::ImageSource::kShared,
                                                          .pages = host_,
                                                          .image_bytes = layout_.bytes,
                                                          .ready_bytes = layout_.bytes});
    if (!opened) {
      return opened.error();
    }
    while (meanwhile && !reports_.copied(layout_.bytes)) {
      const Result<void> done = meanwhile();
      if (!done) {
        return done.error();
      }
    }
    const Result<void> there = reports_.wait_copied(layout_.bytes);
    return there ? Result<Duration>(steady_now() - began) : there.error();
  }

  Result<void> close(ModelId model) {
    reports_.begin();
    const Result<void> done =
        carry_out(core::CloseModel{.model = model, .image = core::ImagePages::kToPool});
    if (done) {
      reports_.wait_closed();
      executor_->finish_close(model);
    }
    return done;
  }

  Result<void> add(std::int64_t sequence, std::int64_t tokens) {
    return carry_out(core::AddSequence{
        .sequence = core::SequenceId(static_cast<std::uint64_t>(sequence)),
        .model = kServed,
        .tokens = std::vector<TokenId>(static_cast<std::size_t>(tokens), TokenId{5}),
        .prompt_tokens = tokens,
        .params = {.temperature = 0, .max_tokens = INT32_MAX, .ignore_eos = true}});
  }
  Result<void> remove(std::int64_t sequence) {
    return carry_out(
        core::RemoveSequence{.sequence = core::SequenceId(static_cast<std::uint64_t>(sequence))});
  }

  /// Reads so many tokens of a prompt, in steps as large as may be; false where there is no room.
  Result<bool> read(std::int64_t sequence, std::int64_t tokens) {
    const std::int64_t most = sizes_of(options_).batch_tokens;
    for (std::int64_t done = 0; done < tokens; done += most) {
      const auto took = step({sequence}, std::min(most, tokens - done));
      if (!took || !took->has_value()) {
        return took ? Result<bool>(false) : took.error();
      }
    }
    return true;
  }

  /// One step of `tokens` for each of the sequences; nothing where there are too few pages.
  Result<std::optional<Duration>> step(const std::vector<std::int64_t>& sequences,
                                       std::int64_t tokens) {
    policy::StepPlan plan{.batches = {{.model = kServed}}};
    for (const std::int64_t sequence : sequences) {
      plan.batches[0].slices.push_back(
          {.sequence = core::SequenceId(static_cast<std::uint64_t>(sequence)), .tokens = tokens});
    }
    std::vector<core::WorkerEvent> events;
    const Result<void> done = executor_->carry_out(core::RunStep{.plan = plan}, events);
    if (!done) {
      return done.error();
    }
    for (const core::WorkerEvent& event : events) {
      if (const auto* step = std::get_if<core::StepDone>(&event)) {
        return step->starved.empty() ? std::optional(step->took) : std::nullopt;
      }
    }
    return std::optional<Duration>();
  }

 private:
  Bench(const CalibrationOptions& options,
        spec::ModelSpec model,
        store::ImageLayout layout,
        std::unique_ptr<device::Device> device)
      : options_(options),
        model_(std::move(model)),
        layout_(std::move(layout)),
        device_(std::move(device)) {}

  /// With `pages` of its own, and the host's for the image: of a CPU those are behind its own.
  static Result<std::unique_ptr<device::Device>> make_device(const CalibrationOptions& options,
                                                             std::uint64_t pages,
                                                             std::uint64_t image,
                                                             bool records) {
    auto arena = device::Arena::create(
        {.page_bytes = options.page_bytes, .page_count = options.gpu ? image : pages + image});
    if (!arena) {
      return arena.error();
    }
    device::DeviceOptions kind = device::CpuDeviceOptions{.cores = options.cores};
    if (options.gpu) {
      kind = device::CudaDeviceOptions{.ordinal = *options.gpu,
                                       .page_bytes = options.page_bytes,
                                       .bytes = pages * options.page_bytes,
                                       .records = records};
    }
    return device::make_device(kind, std::move(*arena));
  }

  /// Reads the image and makes the executor.
  Result<void> load(const store::TensorSet& tensors, std::uint64_t device_pages) {
    for (std::uint64_t i = 0; i < device_pages; ++i) {
      pool_.emplace_back(i);
    }
    const std::uint64_t first = options_.gpu ? 0 : device_pages;
    std::vector<std::byte*> addresses;
    for (std::uint64_t i = 0; i < store::pages_for(layout_.bytes, options_.page_bytes); ++i) {
      host_.emplace_back(first + i);
      addresses.push_back(device_->host_page_address(host_.back()));
    }
    const Result<void> loaded = store::load_image(
        tensors, layout_, {.pages = addresses, .page_bytes = options_.page_bytes});
    if (!loaded) {
      return loaded;
    }
    auto executor = worker::DeviceExecutor::create(
        *device_,
        {.pages = pool_,
         .load_bandwidth = options_.load_bandwidth,
         .max_batch_tokens = sizes_of(options_).batch_tokens,
         .pace = {.step = options_.pace_step, .token = options_.pace_token}},
        reports_.handlers());
    if (!executor) {
      return executor.error();
    }
    executor_ = std::move(*executor);
    for (const ModelId id : {kServed, kCopied}) {
      executor_->describe({.model = id,
                           .name = "calibrated",
                           .spec = model_,
                           .dtype = options_.dtype,
                           .directory = options_.directory});
    }
    return {};
  }

  /// Refusals become errors.
  Result<void> carry_out(core::WorkerCommand command) {
    std::vector<core::WorkerEvent> events;
    const Result<void> done = executor_->carry_out(std::move(command), events);
    for (const core::WorkerEvent& event : events) {
      if (const auto* failed = std::get_if<core::OpenFailed>(&event)) {
        return failed->error;
      }
      if (const auto* refused = std::get_if<core::SequenceRefused>(&event)) {
        return refused->error;
      }
    }
    return done;
  }

  const CalibrationOptions& options_;
  spec::ModelSpec model_;
  store::ImageLayout layout_;
  std::unique_ptr<device::Device> device_;
  std::vector<PageId> pool_{};  ///< Of the device.
  std::vector<PageId> host_{};  ///< That the image is in.
  Reports reports_{};
  std::unique_ptr<worker::DeviceExecutor> executor_{};
};

/// A chunk of a prompt behind `cached` tokens, `repeats` times; nothing where it does not fit.
Result<std::optional<StepSample>> measure_chunk(Bench& bench,
                                                std::int64_t tokens,
                                                std::int64_t cached,
                                                std::int64_t repeats) {
  std::vector<double> times;
  for (std::int64_t i = 0; i < repeats; ++i) {
    const Result<void> added = bench.add(i, cached + tokens);
    if (!added) {
      return added.error();
    }
    const auto before = bench.read(i, cached);
    if (!before) {
      return before.error();
    }
    const auto took = bench.step({i}, tokens);
    const Result<void> removed = bench.remove(i);
    if (!took || !removed) {
      return took ? removed.error() : took.error();
    }
    if (!took->has_value()) {
      return std::optional<StepSample>();
    }
    times.push_back(to_seconds(**took));
  }
  return std::optional(StepSample{.tokens = tokens,
                                  .rows = 1,
                                  .chunks = {{.tokens = tokens, .cached = cached}},
                                  .seconds = median(std::move(times))});
}

/// Reads the prompts of so many sequences; false where there is no room for them.
Result<bool> prefill(Bench& bench, const std::vector<std::int64_t>& ids, std::int64_t tokens) {
  bool fits = true;
  for (const std::int64_t id : ids) {
    const Result<void> added = bench.add(id, tokens);
    if (!added) {
      return added.error();
    }
    const auto read = bench.read(id, tokens);
    if (!read) {
      return read.error();
    }
    fits = fits && *read;
  }
  return fits;
}

/// A decode step of `batch` sequences with `context` tokens each.
Result<std::optional<StepSample>> measure_decode(Bench& bench,
                                                 std::int64_t batch,
                                                 std::int64_t context,
                                                 std::int64_t repeats) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < batch; ++i) {
    ids.push_back(i);
  }
  Result<bool> fits = prefill(bench, ids, context);
  std::vector<double> times;
  for (std::int64_t i = 0; fits && *fits && i < repeats; ++i) {
    const auto took = bench.step(ids, 1);
    if (!took) {
      return took.error();
    }
    fits = took->has_value();
    if (*fits) {
      times.push_back(to_seconds(**took));
    }
  }
  for (const std::int64_t id : ids) {
    const Result<void> removed = bench.remove(id);
    if (!removed) {
      return removed.error();
    }
  }
  if (!fits) {
    return fits.error();
  }
  if (!*fits) {
    return std::optional<StepSample>();
  }
  return std::optional(StepSample{.tokens = batch,
                                  .rows = batch,
                                  .context = batch * (context + (repeats + 1) / 2),
                                  .seconds = median(std::move(times))});
}

Result<MapSample> measure_map(Bench& bench, std::int64_t count, std::int64_t repeats) {
  const std::vector<PageId> pages = bench.some_pages(count);
  const std::size_t page = bench.device().properties().page_bytes;
  auto window = memory::Window::create(bench.device(), pages.size() * page);
  if (!window) {
    return window.error();
  }
  std::vector<double> maps;
  std::vector<double> unmaps;
  for (std::int64_t i = 0; i < repeats; ++i) {
    const Instant began = steady_now();
    const Result<void> mapped = window->map(pages, device::Access::kRead);
    const Instant between = steady_now();
    window->unmap_all();
    if (!mapped) {
      return mapped.error();
    }
    maps.push_back(to_seconds(between - began));
    unmaps.push_back(to_seconds(steady_now() - between));
  }
  return MapSample{.pages = std::ssize(pages),
                   .map = median(std::move(maps)),
                   .unmap = median(std::move(unmaps))};
}

/// Copies while the engine rests, then while it decodes. Leaves the model served.
Result<void> measure_link(Bench& bench, Calibration& found) {
  const auto bytes = static_cast<double>(bench.image_bytes());
  const Result<Duration> alone = bench.copy(kServed, nullptr);
  if (!alone) {
    return alone.error();
  }
  found.copy_alone = bytes / to_seconds(*alone);
  const Result<bool> read = prefill(bench, {0}, 1);
  if (!read) {
    return read.error();
  }
  const Result<Duration> decoding = bench.copy(kCopied, [&]() -> Result<void> {
    const auto took = bench.step({0}, 1);
    return took ? Result<void>() : took.error();
  });
  if (!decoding) {
    return decoding.error();
  }
  found.copy_decoding = bytes / to_seconds(*decoding);
  const Result<void> removed = bench.remove(0);
  return removed ? bench.close(kCopied) : removed;
}

/// What kinds of steps a model and a step's limit allow: chunks of a prompt behind cached tokens,
/// and decodes of some sequences with so many tokens each.
struct StepKinds {
  std::vector<policy::PrefillChunk> chunks{};
  struct Decode {
    std::int64_t batch = 0;
    std::int64_t context = 0;
  };
  std::vector<Decode> decodes{};

  StepKinds(const CalibrationOptions& options, std::int64_t max_position) {
    const Sizes sizes = sizes_of(options);
    for (const std::int64_t tokens : sizes.chunks) {
      for (const std::int64_t cached : sizes.cached) {
        if (tokens <= sizes.batch_tokens && cached <= options.max_context &&
            cached + tokens < max_position) {
          chunks.push_back({.tokens = tokens, .cached = cached});
        }
      }
    }
    for (const std::int64_t batch : sizes.batches) {
      for (const std::int64_t context : sizes.contexts) {
        // On a CPU a context is read in one step, which bounds how long it takes.
        const bool short_enough =
            context <= (options.gpu ? options.max_context : sizes.batch_tokens);
        if (short_enough && batch <= sizes.batch_tokens &&
            context + options.repeats < max_position) {
          decodes.push_back({.batch = batch, .context = context});
        }
      }
    }
  }
};

Result<void> measure_steps(Bench& bench,
                           const CalibrationOptions& options,
                           const std::function<void(double)>& progress,
                           Calibration& found) {
  const StepKinds kinds(options, bench.model().max_position);
  std::size_t done = 0;
  const auto keep = [&](Result<std::optional<StepSample>> sample) -> Result<void> {
    progress(static_cast<double>(++done) /
             static_cast<double>(kinds.chunks.size() + kinds.decodes.size()));
    if (sample && sample->has_value()) {
      found.steps.push_back(std::move(**sample));
    }
    return sample ? Result<void>() : sample.error();
  };
  Result<void> kept;
  for (const policy::PrefillChunk& chunk : kinds.chunks) {
    kept = kept ? keep(measure_chunk(bench, chunk.tokens, chunk.cached, options.repeats)) : kept;
  }
  for (const StepKinds::Decode& decode : kinds.decodes) {
    kept = kept ? keep(measure_decode(bench, decode.batch, decode.context, options.repeats)) : kept;
  }
  return kept;
}

/// The decode steps of `found` once more on a device that does not record.
Result<void> measure_unrecorded(const CalibrationOptions& options, Calibration& found) {
  auto bench = Bench::create(options, false);
  if (!bench) {
    return bench.error();
  }
  if (const Result<Duration> copied = (*bench)->copy(kServed, nullptr); !copied) {
    return copied.error();
  }
  const StepKinds kinds(options, (*bench)->model().max_position);
  for (const StepKinds::Decode& decode : kinds.decodes) {
    const auto sample = measure_decode(**bench, decode.batch, decode.context, options.repeats);
    if (!sample) {
      return sample.error();
    }
    const auto same = std::ranges::find_if(found.steps, [&](const StepSample& step) {
      return sample->has_value() && step.chunks.empty() && step.rows == (*sample)->rows &&
             step.context == (*sample)->context;
    });
    if (same != found.steps.end()) {
      found.unrecorded.push_back({.rows = decode.batch,
                                  .context = decode.context,
                                  .seconds = (*sample)->seconds,
                                  .recorded = same->seconds});
    }
  }
  return {};
}

/// Operations by themselves, on a device that has hardly a page.
Result<void> measure_ops(const CalibrationOptions& options, Calibration& found) {
  auto device = device::CudaDevice::create(
      {.ordinal = *options.gpu, .page_bytes = options.page_bytes, .bytes = options.page_bytes});
  if (!device) {
    return device.error();
  }
  auto samples = time_ops(**device,
                          found.model,
                          options.dtype,
                          {.tokens = sizes_of(options).batch_tokens,
                           .context = std::min(options.max_context, OpLimits{}.context),
                           .repeats = options.repeats});
  if (!samples) {
    return samples.error();
  }
  found.ops = std::move(*samples);
  return {};
}

}  // namespace

Result<Calibration> calibrate(const CalibrationOptions& options,
                              const std::function<void(double)>& progress) {
  auto bench = Bench::create(options);
  if (!bench) {
    return bench.error();
  }
  Calibration found{.model = (*bench)->model(),
                    .image_bytes = (*bench)->image_bytes(),
                    .memory = options.memory,
                    .page_bytes = options.page_bytes};
  for (const std::int64_t count : sizes_of(options).maps) {
    const Result<MapSample> sample = measure_map(**bench, count, options.repeats);
    if (!sample) {
      return sample.error();
    }
    found.maps.push_back(*sample);
  }
  const Result<void> linked = measure_link(**bench, found);
  if (!linked) {
    return linked.error();
  }
  Result<void> done = measure_steps(**bench, options, progress, found);
  if (done && options.gpu) {
    bench->reset();  // The memory is wanted for what follows.
    done = measure_unrecorded(options, found);
    done = done ? measure_ops(options, found) : done;
  }
  return done ? Result<Calibration>(std::move(found)) : done.error();
}

}  // namespace heddle::lab
