#include "lab/calibration.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "device/cuda/cuda_device.h"
#include "memory/window.h"

namespace heddle::lab {

namespace {

/// What is measured, as far as device and model allow.
struct Sizes {
  std::vector<std::int64_t> chunks{};
  std::vector<std::int64_t> cached{};
  std::vector<std::int64_t> batches{};
  std::vector<std::int64_t> contexts{};
  std::vector<std::int64_t> maps{};
};

Sizes sizes_of(const CalibrationOptions& options) {
  return options.gpu ? Sizes{.chunks = {16, 128, 512, 1024, 2048},
                             .cached = {0, 1024},
                             .batches = {1, 4, 16, 64, 128},
                             .contexts = {32, 256, 1024, 4096},
                             .maps = {1, 8, 32, 256, 1024}}
                     : Sizes{.chunks = {16, 64, 128, 256, 448},
                             .cached = {0, 32},
                             .batches = {1, 4, 16},
                             .contexts = {32, 256},
                             .maps = {1, 8, 32}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A chunk of a prompt behind `cached` tokens, `repeats` times; nothing where it does not fit.
Result<std::optional<StepSample>> measure_chunk(DeviceBench& bench,
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

/// A decode step of `batch` sequences with `context` tokens each.
Result<std::optional<StepSample>> measure_decode(DeviceBench& bench,
                                                 std::int64_t batch,
                                                 std::int64_t context,
                                                 std::int64_t repeats) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < batch; ++i) {
    ids.push_back(i);
  }
  Result<bool> fits = bench.prefill(ids, context);
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

Result<MapSample> measure_map(DeviceBench& bench, std::int64_t count, std::int64_t repeats) {
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
Result<void> measure_link(DeviceBench& bench, Calibration& found) {
  const auto bytes = static_cast<double>(bench.image_bytes());
  const Result<Duration> alone = bench.copy(DeviceBench::kServed, nullptr);
  if (!alone) {
    return alone.error();
  }
  found.copy_alone = bytes / to_seconds(*alone);
  const Result<bool> read = bench.prefill({0}, 1);
  if (!read) {
    return read.error();
  }
  const Result<Duration> decoding = bench.copy(DeviceBench::kCopied, [&]() -> Result<void> {
    const auto took = bench.step({0}, 1);
    return took ? Result<void>() : took.error();
  });
  if (!decoding) {
    return decoding.error();
  }
  found.copy_decoding = bytes / to_seconds(*decoding);
  const Result<void> removed = bench.remove(0);
  return removed ? bench.close(DeviceBench::kCopied) : removed;
}

/// What kinds of steps a model and a step's limit allow: chunks of a prompt behind cached tokens,
/// and decodes of some sequences with so many tokens each.
struct StepKinds {
  std::vector<sim::PrefillChunk> chunks{};
  struct Decode {
    std::int64_t batch = 0;
    std::int64_t context = 0;
  };
  std::vector<Decode> decodes{};

  StepKinds(const CalibrationOptions& options, std::int64_t max_position) {
    const Sizes sizes = sizes_of(options);
    const std::int64_t most = step_tokens(options);
    for (const std::int64_t tokens : sizes.chunks) {
      for (const std::int64_t cached : sizes.cached) {
        if (tokens <= most && cached <= options.max_context && cached + tokens < max_position) {
          chunks.push_back({.tokens = tokens, .cached = cached});
        }
      }
    }
    for (const std::int64_t batch : sizes.batches) {
      for (const std::int64_t context : sizes.contexts) {
        // On a CPU a context is read in one step, which bounds how long it takes.
        const bool short_enough = context <= (options.gpu ? options.max_context : most);
        if (short_enough && batch <= most && context + options.repeats < max_position) {
          decodes.push_back({.batch = batch, .context = context});
        }
      }
    }
  }
};

Result<void> measure_steps(DeviceBench& bench,
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
  for (const sim::PrefillChunk& chunk : kinds.chunks) {
    kept = kept ? keep(measure_chunk(bench, chunk.tokens, chunk.cached, options.repeats)) : kept;
  }
  for (const StepKinds::Decode& decode : kinds.decodes) {
    kept = kept ? keep(measure_decode(bench, decode.batch, decode.context, options.repeats)) : kept;
  }
  return kept;
}

/// The decode steps of `found` once more on a device that does not record.
Result<void> measure_unrecorded(const CalibrationOptions& options, Calibration& found) {
  auto bench = DeviceBench::create(options, {.records = false});
  if (!bench) {
    return bench.error();
  }
  if (const Result<Duration> copied = (*bench)->copy(DeviceBench::kServed, nullptr); !copied) {
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
                          {.tokens = step_tokens(options),
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
  auto bench = DeviceBench::create(options, {});
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
