#include "lab/device_bench.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "core/worker_core.h"
#include "device/registry.h"
#include "engine/workspace.h"
#include "store/image_loader.h"

namespace heddle::lab {

namespace {

constexpr std::uint64_t kPagesForKv = 8;

/// With `pages` of its own, and the host's for the image: of a CPU those are behind its own.
Result<std::unique_ptr<device::Device>> make_device(const CalibrationOptions& options,
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

}  // namespace

std::int64_t step_tokens(const CalibrationOptions& options) {
  if (options.max_batch_tokens > 0) {
    return options.max_batch_tokens;
  }
  return options.gpu ? 2048 : 512;
}

/// What the mapper's thread reports.
class DeviceBench::Reports {
 public:
  worker::DeviceExecutor::Handlers handlers() {
    return {.on_event =
                [this](const core::WorkerEvent& event) {
                  const std::lock_guard lock(mutex_);
                  if (const auto* progress = std::get_if<core::CopyProgress>(&event)) {
                    copied_ = progress->bytes;
                  } else if (const auto* failed = std::get_if<core::OpenFailed>(&event)) {
                    failure_ = failed->error;
                  } else if (std::holds_alternative<core::ModelOpened>(event)) {
                    opened_ = true;
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
    opened_ = false;
    closed_ = false;
    failure_.reset();
  }
  /// Whether so much has been copied by now, and can be read where the model has it.
  [[nodiscard]] bool there(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return (copied_ >= bytes && opened_) || failure_.has_value();
  }
  Result<void> wait_there(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (copied_ >= bytes && opened_) || failure_.has_value(); });
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
  bool opened_ = false;
  bool closed_ = false;
  std::optional<Error> failure_{};
};

Result<std::unique_ptr<DeviceBench>> DeviceBench::create(const CalibrationOptions& options,
                                                         Kind kind) {
  auto checkpoint = store::Checkpoint::open(options.directory);
  if (!checkpoint) {
    return checkpoint.error();
  }
  store::ImageLayout layout = store::plan_image(checkpoint->config.model, options.dtype);
  const auto image = store::pages_for(layout.bytes, options.page_bytes);
  const auto workspace = store::pages_for(
      engine::workspace_bytes(options.gpu ? device::Kind::kCuda : device::Kind::kCpu,
                              checkpoint->config.model,
                              options.dtype,
                              step_tokens(options)),
      options.page_bytes);
  const std::uint64_t pages = options.memory / options.page_bytes;
  const std::uint64_t wanted = kind.images * image + workspace + kPagesForKv;
  if (pages < wanted) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "calibrate: a memory of " + std::to_string(pages) +
                            " pages does not hold the model, of " + std::to_string(image) +
                            (kind.images > 1 ? ", twice" : "") + ", the workspace of a step, of " +
                            std::to_string(workspace) + ", and some KV; it takes " +
                            std::to_string(wanted) + " pages, " +
                            format_bytes(wanted * options.page_bytes)};
  }
  auto device = make_device(options, pages, image, kind.records);
  if (!device) {
    return device.error();
  }
  std::unique_ptr<DeviceBench> bench(
      new DeviceBench(options, checkpoint->config.model, std::move(layout), std::move(*device)));
  const Result<void> ready = bench->load(checkpoint->tensors, pages);
  return ready ? Result<std::unique_ptr<DeviceBench>>(std::move(bench)) : ready.error();
}

DeviceBench::DeviceBench(const CalibrationOptions& options,
                         spec::ModelSpec model,
                         store::ImageLayout layout,
                         std::unique_ptr<device::Device> device)
    : options_(options),
      model_(std::move(model)),
      layout_(std::move(layout)),
      device_(std::move(device)),
      reports_(std::make_unique<Reports>()) {}

DeviceBench::~DeviceBench() = default;

std::vector<PageId> DeviceBench::some_pages(std::int64_t count) const {
  return {pool_.begin(), pool_.begin() + std::min<std::int64_t>(count, std::ssize(pool_))};
}

Result<Duration> DeviceBench::copy(ModelId model, const std::function<Result<void>()>& meanwhile) {
  const Result<void> kept = carry_out(core::KeepGraphs{
      .pages = worker::DeviceExecutor::most_graph_pages(*device_, std::ssize(pool_))});
  if (!kept) {
    return kept.error();
  }
  reports_->begin();
  const Instant began = steady_now();
  const Result<void> opened = carry_out(core::OpenModel{.model = model,
                                                        .source = core::ImageSource::kShared,
                                                        .pages = host_,
                                                        .image_bytes = layout_.bytes,
                                                        .ready_bytes = layout_.bytes});
  if (!opened) {
    return opened.error();
  }
  while (meanwhile && !reports_->there(layout_.bytes)) {
    const Result<void> done = meanwhile();
    if (!done) {
      return done.error();
    }
  }
  const Result<void> there = reports_->wait_there(layout_.bytes);
  return there ? Result<Duration>(steady_now() - began) : there.error();
}

Result<void> DeviceBench::close(ModelId model) {
  reports_->begin();
  const Result<void> done =
      carry_out(core::CloseModel{.model = model, .image = core::ImagePages::kToPool});
  if (done) {
    reports_->wait_closed();
    executor_->finish_close(model);
  }
  return done;
}

Result<void> DeviceBench::add(std::int64_t sequence, std::int64_t tokens) {
  return carry_out(core::AddSequence{
      .sequence = core::SequenceId(static_cast<std::uint64_t>(sequence)),
      .model = kServed,
      .tokens = std::vector<TokenId>(static_cast<std::size_t>(tokens), TokenId{5}),
      .prompt_tokens = tokens,
      .params = {.temperature = 0, .max_tokens = INT32_MAX, .ignore_eos = true}});
}
Result<void> DeviceBench::remove(std::int64_t sequence) {
  return carry_out(
      core::RemoveSequence{.sequence = core::SequenceId(static_cast<std::uint64_t>(sequence))});
}

Result<bool> DeviceBench::read(std::int64_t sequence, std::int64_t tokens) {
  const std::int64_t most = step_tokens(options_);
  for (std::int64_t done = 0; done < tokens; done += most) {
    const auto took = step({sequence}, std::min(most, tokens - done));
    if (!took || !took->has_value()) {
      return took ? Result<bool>(false) : took.error();
    }
  }
  return true;
}

Result<bool> DeviceBench::prefill(const std::vector<std::int64_t>& sequences, std::int64_t tokens) {
  bool fits = true;
  for (const std::int64_t id : sequences) {
    const Result<void> added = add(id, tokens);
    if (!added) {
      return added.error();
    }
    const auto was_read = read(id, tokens);
    if (!was_read) {
      return was_read.error();
    }
    fits = fits && *was_read;
  }
  return fits;
}

Result<std::optional<Duration>> DeviceBench::step(const std::vector<std::int64_t>& sequences,
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

Result<void> DeviceBench::load(const store::TensorSet& tensors, std::uint64_t device_pages) {
  for (std::uint64_t i = 0; i < device_pages; ++i) {
    pool_.emplace_back(i);
  }
  const std::uint64_t first = options_.gpu ? 0 : device_pages;
  std::vector<std::byte*> addresses;
  for (std::uint64_t i = 0; i < store::pages_for(layout_.bytes, options_.page_bytes); ++i) {
    host_.emplace_back(first + i);
    addresses.push_back(device_->host_page_address(host_.back()));
  }
  const Result<void> loaded =
      store::load_image(tensors, layout_, {.pages = addresses, .page_bytes = options_.page_bytes});
  if (!loaded) {
    return loaded;
  }
  auto executor = worker::DeviceExecutor::create(
      *device_,
      {.pages = pool_,
       .load_bandwidth = options_.load_bandwidth,
       .max_batch_tokens = step_tokens(options_),
       .pace = {.step = options_.pace_step, .token = options_.pace_token}},
      reports_->handlers());
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

Result<void> DeviceBench::carry_out(core::WorkerCommand command) {
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

}  // namespace heddle::lab
