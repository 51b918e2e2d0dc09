#include "lab/checkpoint_times.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/driver.h"
#include "sim/report.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// The process that is measured: holds what it is told, and says "" or what is wrong.
[[noreturn]] void serve(int socket) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Held held;
  for (Wanted wanted; ::recv(socket, &wanted, sizeof wanted, 0) == sizeof wanted;) {
    const Result<void> done = hold(wanted, held);
    const std::string said = done ? "+" : done.error().message;
    (void)::send(socket, said.data(), said.size(), MSG_NOSIGNAL);
  }
  std::_Exit(0);
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

CheckpointSubject::CheckpointSubject() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return;  // time() says that there is none.
  }
  socket_ = Descriptor(ends[0]);
  Descriptor other(ends[1]);
  pid_ = ::fork();
  if (pid_ == 0) {
    socket_ = Descriptor();
    serve(other.get());
  }
}

CheckpointSubject::~CheckpointSubject() {
  if (pid_ > 0) {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
}

CheckpointSample CheckpointSubject::time(external::DeviceCheckpoint& checkpoint,
                                         int ordinal,
                                         std::uint64_t bytes) {
  CheckpointSample sample{.bytes = bytes};
  const Wanted wanted{.ordinal = ordinal, .bytes = bytes};
  std::string said(4096, 0);
  ssize_t heard = -1;
  if (pid_ > 0 && ::send(socket_.get(), &wanted, sizeof wanted, MSG_NOSIGNAL) > 0) {
    heard = ::recv(socket_.get(), said.data(), said.size(), 0);
  }
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(heard, 0)));
  if (said == "+") {
    measure(checkpoint, pid_, sample);
  } else {
    sample.skipped = said.empty() ? "there is no process to be saved" : said;
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
