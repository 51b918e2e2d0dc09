#include "lab/checkpoint_times.h"

#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/driver.h"
#include "sim/report.h"

namespace heddle::lab {

namespace {

constexpr auto kPatience = std::chrono::seconds(30);

struct Wanted {
  std::int64_t ordinal = 0;
  std::uint64_t bytes = 0;
};

/// What the process holds, from one request to the next.
struct Held {
  std::unique_ptr<device::CudaContext> context{};
  device::CUdeviceptr at = 0;
};

Result<void> hold(const Wanted& wanted, Held& held) {
  if (held.at != 0) {
    (void)held.context->api().cuMemFree_v2(std::exchange(held.at, 0));
  }
  if (held.context == nullptr) {
    const auto driver = device::Driver::open();
    auto context = driver ? device::CudaContext::create(*driver, static_cast<int>(wanted.ordinal))
                          : Result<std::unique_ptr<device::CudaContext>>(driver.error());
    if (!context) {
      return context.error();
    }
    held.context = std::move(*context);
  }
  return held.context->check("take the memory: cuMemAlloc",
                             held.context->api().cuMemAlloc_v2(&held.at, wanted.bytes));
}

/// The process that is measured: holds what it is told, "GPU BYTES", and says "+" or what is wrong.
void serve(const Line& line) {
  Held held;
  while (const std::optional<std::string> heard = line.hear()) {
    std::istringstream words(*heard);
    Wanted wanted;
    words >> wanted.ordinal >> wanted.bytes;
    const Result<void> done = hold(wanted, held);
    (void)line.say(done ? "+" : done.error().message);
  }
}

void measure(external::DeviceCheckpoint& checkpoint, pid_t pid, CheckpointSample& sample) {
  const Instant began = steady_now();
  const auto saved = external::save_all(checkpoint, {pid}, kPatience);
  sample.save = to_seconds(steady_now() - began);
  if (!saved) {
    sample.skipped = saved.error().message;
    return;
  }
  const Instant between = steady_now();
  const auto restored = external::restore_all(checkpoint, {pid});
  sample.restore = to_seconds(steady_now() - between);
  if (!restored) {
    sample.skipped = restored.error().message;
  }
}

}  // namespace

CheckpointSubject::CheckpointSubject() : process_(serve) {}

CheckpointSample CheckpointSubject::time(external::DeviceCheckpoint& checkpoint,
                                         int ordinal,
                                         std::uint64_t bytes) {
  CheckpointSample sample{.bytes = bytes};
  const Result<std::string> said =
      process_.ask(std::to_string(ordinal) + " " + std::to_string(bytes));
  if (said && *said == "+") {
    measure(checkpoint, process_.pid(), sample);
  } else {
    sample.skipped = said ? *said : said.error().message;
  }
  return sample;
}

std::vector<CheckpointSample> time_checkpoints(CheckpointSubject& subject,
                                               int ordinal,
                                               std::uint64_t memory) {
  const auto checkpoint = external::open_cuda_checkpoint();
  std::vector<CheckpointSample> samples;
  for (const std::uint64_t gib : {4U, 16U, 64U}) {
    CheckpointSample sample{.bytes = gib << 30U};
    if (!checkpoint) {
      sample.skipped = checkpoint.error().message;
    } else if (sample.bytes > memory) {
      sample.skipped = "more than the device's memory";
    } else {
      sample = subject.time(**checkpoint, ordinal, sample.bytes);
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<std::vector<std::string>> checkpoint_table(
    const std::vector<CheckpointSample>& samples) {
  std::vector<std::vector<std::string>> rows{{"checkpoint of a process", "save s", "restore s"}};
  for (const CheckpointSample& sample : samples) {
    const bool measured = sample.skipped.empty();
    rows.push_back({format_bytes(sample.bytes),
                    measured ? sim::format_seconds(sample.save) : "-",
                    measured ? sim::format_seconds(sample.restore) : "skipped: " + sample.skipped});
  }
  return rows;
}

}  // namespace heddle::lab
