#include "cuda_emulator/machine.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cuda_emulator/threads.h"

#include <unistd.h>

namespace emulator {

using namespace heddle::device;  // NOLINT(google-build-using-namespace): the driver's names.

Machine::Machine(const Config& wanted)
    : config(wanted),
      memory(wanted),
      contexts(wanted.devices),
      retained(wanted.devices),
      lost(wanted.devices) {
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    contexts[i].device = i;
  }
  seed_orders(config.seed);
  machinery.advance = [this](std::unique_lock<std::mutex>& lock) { return advance(lock); };
  machinery.gate = [this](bool open) {
    if (open) {
      memory.open();
    } else {
      memory.close();
    }
  };
}

CUresult Machine::planned(const std::string& call) {
  ++calls[call];
  const auto plan = plans.find(call);
  if (plan == plans.end() || --plan->second.in > 0) {
    return kCudaSuccess;
  }
  const CUresult status = plan->second.status;
  plans.erase(plan);
  return status;
}

CUresult Machine::enter(const std::string& call, bool needs_init, bool needs_device) {
  if (const CUresult status = planned(call); status != kCudaSuccess) {
    return status;
  }
  if (needs_init && !initialised) {
    return kCudaNotInitialized;
  }
  if (!needs_device) {
    return kCudaSuccess;
  }
  const CUcontext context = current_context();
  return context == nullptr ? kCudaInvalidContext : lost[context->device];
}

bool Machine::spoils_capture() {
  bool spoils = false;
  for (const auto& [handle, stream] : streams) {
    if (stream->queue->capturing() && stream->queue->recorder() == std::this_thread::get_id()) {
      stream->queue->spoil();
      spoils = true;
    }
  }
  return spoils;
}

bool Machine::advance(std::unique_lock<std::mutex>& lock) {
  for (const auto& [handle, stream] : streams) {
    if (const auto queue = stream->queue; queue->ready()) {
      (void)queue->run_until(lock, queue->done() + 1);  // What failed is told who waits for it.
      return true;
    }
  }
  return false;
}

CUresult Machine::run_device(std::unique_lock<std::mutex>& lock, std::size_t device) {
  std::vector<std::shared_ptr<Queue>> queues;
  for (const auto& [handle, stream] : streams) {
    if (stream->queue->device() == device) {
      queues.push_back(stream->queue);
    }
  }
  for (const auto& queue : queues) {
    if (const CUresult status = queue->run_all(lock); status != kCudaSuccess) {
      return status;
    }
  }
  return kCudaSuccess;
}

std::string Machine::alive() const {
  std::string text = memory.alive();
  const auto say = [&](std::size_t count, const char* what) {
    if (count > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    }
  };
  say(streams.size(), "streams");
  say(events.size(), "events");
  say(modules.size(), "modules");
  say(graphs.size() + executables.size(), "graphs");
  std::size_t contexts_alive = 0;
  for (const int count : retained) {
    contexts_alive += count > 0 ? 1U : 0U;
  }
  say(contexts_alive, "contexts");
  return text;
}

namespace {

/// Made at the first use, and never destroyed: threads may end after main does.
Machine*& the_machine() {
  static Machine* machine = nullptr;
  return machine;
}

}  // namespace

std::string make_machine(const std::string& text) {
  Config config;
  const std::string wrong = read_config(text, config);
  if (wrong.empty()) {
    delete the_machine();
    the_machine() = new Machine(config);
  }
  return wrong;
}

namespace {

/// Failures for one process: the file that HEDDLE_CUDA_EMULATOR_FAULTS names, which the first to
/// begin takes away, has lines of call, nth and status, as heddle_cuda_emulator_fail takes them.
void plan_faults() {
  const char* const file = std::getenv("HEDDLE_CUDA_EMULATOR_FAULTS");
  if (file == nullptr) {
    return;
  }
  const std::string mine = std::string(file) + "." + std::to_string(::getpid());
  if (std::rename(file, mine.c_str()) != 0) {
    return;
  }
  std::ifstream stream(mine);
  std::string call;
  for (Machine::Plan plan; stream >> call >> plan.in >> plan.status;) {
    the_machine()->plans[call] = plan;
  }
}

}  // namespace

Machine& machine() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (the_machine() != nullptr) {
      return;
    }
    const char* const text = std::getenv("HEDDLE_CUDA_EMULATOR");
    const std::string wrong = make_machine(text == nullptr ? "" : text);
    if (!wrong.empty()) {
      std::fprintf(stderr, "%s\n", wrong.c_str());
      std::abort();
    }
    plan_faults();
  });
  return *the_machine();
}

CUcontext& current_context() {
  static thread_local CUcontext context = nullptr;
  return context;
}

}  // namespace emulator
