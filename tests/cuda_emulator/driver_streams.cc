// The driver's functions for work: copies, streams, events, kernels and graphs.

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "cuda_emulator/control.h"
#include "cuda_emulator/driver_calls.h"
#include "cuda_emulator/threads.h"

#include <dlfcn.h>

namespace {

/// The two ends of a copy are looked at when it runs: by then they must be mapped.
CUresult run_copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, std::size_t device) {
  Machine& here = machine();
  std::size_t link = 0;
  {
    const std::lock_guard lock(here.machinery.mutex);
    const emulator::Memory& memory = here.memory;
    const bool to = memory.belongs_to_device(target);
    const bool from = memory.belongs_to_device(source);
    if ((to && !memory.is_device(target, bytes, true, device)) ||
        (from && !memory.is_device(source, bytes, false, device))) {
      std::fprintf(stderr, "emulated copy: touched what is not mapped\n");
      return kCudaIllegalAddress;
    }
    link = to != from ? here.config.link : 0;
    here.calls["copy in"] += to && !from ? 1U : 0U;
  }
  if (link > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(bytes * 1'000'000'000 / link));
  }
  std::memcpy(std::bit_cast<void*>(target), std::bit_cast<const void*>(source), bytes);
  return kCudaSuccess;
}

CUresult run_kernel(void* entry,
                    emulator::Dim grid,
                    emulator::Dim block,
                    std::size_t shared_bytes,
                    const std::vector<std::byte>& params) {
  {
    const std::lock_guard lock(machine().machinery.mutex);
    if (const CUresult status = machine().planned("kernel"); status != kCudaSuccess) {
      return status;
    }
  }
  return emulator::run(entry, grid, block, shared_bytes, params.data(), params.size())
             ? kCudaSuccess
             : kCudaIllegalAddress;
}

bool shape_fits(emulator::Dim grid, emulator::Dim block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= emulator::kBlockThreadsMax && block.z <= 64 && grid.x > 0 &&
         grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
}

/// Whether a launch has no attribute, or that by which kernels overlap, on a GPU that can.
bool takes_attributes(const Machine& here, const CUlaunchConfig& config) {
  constexpr std::size_t kHopper = 90;
  return config.numAttrs == 0 || (config.numAttrs == 1 && here.config.capability >= kHopper &&
                                  config.attrs->id == kLaunchProgrammatic &&
                                  config.attrs->value.programmaticStreamSerializationAllowed == 1);
}

/// The struct that cuLaunchKernelEx's `extra` holds; kernels of ours take one.
bool read_params(void** extra, std::vector<std::byte>& params) {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  for (; extra != nullptr && *extra != nullptr; extra += 2) {
    const auto key = std::bit_cast<std::uintptr_t>(extra[0]);
    if (key == kLaunchParams) {
      data = static_cast<const std::byte*>(extra[1]);
    } else if (key == kLaunchParamsBytes) {
      bytes = *static_cast<const std::size_t*>(extra[1]);
    } else {
      return false;
    }
  }
  if (data == nullptr || bytes == 0 || bytes > 4096) {
    return false;
  }
  params.assign(data, data + bytes);
  return true;
}

/// Whether something among the parameters is an address of ordinary memory, which a GPU could not
/// reach though the emulated one could.
bool has_ordinary_address(const emulator::Memory& memory, const std::vector<std::byte>& params) {
  for (std::size_t at = 0; at + 8 <= params.size(); at += 8) {
    CUdeviceptr word = 0;
    std::memcpy(&word, &params[at], 8);
    if (memory.is_ordinary(word)) {
      std::fprintf(stderr, "emulated launch: byte %zu of the parameters is no GPU's address\n", at);
      return true;
    }
  }
  return false;
}

std::atomic_ref<std::uint32_t> flag_at(CUdeviceptr flag) {
  return std::atomic_ref(*std::bit_cast<std::uint32_t*>(flag));
}

/// Enqueues an operation on a flag. Not recorded: the real one would, and then all replays would
/// wait for the same value.
template <class Make>
CUresult flag_call(
    const char* name, CUstream stream, CUdeviceptr flag, unsigned how, const Make& make) {
  return call(name, Needs::kDevice, [&](Machine& here, auto&) {
    if (here.config.flags == 0) {
      return kCudaNotSupported;
    }
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    if (how != 0 || flag % 4 != 0 || !here.memory.is_pinned(flag, 4)) {
      return kCudaInvalidValue;  // Ours are all in the host's memory.
    }
    if (stream->queue->capturing()) {
      stream->queue->spoil();
      return kCudaStreamCaptureUnsupported;
    }
    return push(here, stream, make());
  });
}

/// What work that ran took beside the host's time [s].
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<double> taken = 0.0;

}  // namespace

extern "C" {

EXPORT void heddle_cuda_emulator_take(double seconds) {
  taken += seconds;
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr target,
                              CUdeviceptr source,
                              std::size_t bytes,
                              CUstream stream) {
  return call("cuMemcpyAsync", Needs::kDevice, [&](Machine& here, auto& lock) {
    const emulator::Memory& memory = here.memory;
    const auto pageable = [&](CUdeviceptr at) {
      return !memory.belongs_to_device(at) && !memory.is_pinned(at, bytes);
    };
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const bool from = pageable(source);
    const bool to = pageable(target);
    const std::shared_ptr<Queue> queue = stream->queue;
    if ((from || to) && queue->capturing()) {
      queue->spoil();
      return kCudaStreamCaptureUnsupported;
    }
    Operation copy;
    if (from) {
      // The source is read before the call returns, and after what was enqueued before.
      const CUresult status = settle(here, queue->device(), queue->run_all(lock));
      if (status != kCudaSuccess) {
        return status;
      }
      const auto* const first = std::bit_cast<const std::byte*>(source);
      const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
      copy.run = [=] {
        const auto at = std::bit_cast<CUdeviceptr>(staged->data());
        return run_copy(target, at, bytes, queue->device());
      };
    } else {
      copy.run = [=, device = queue->device()] { return run_copy(target, source, bytes, device); };
    }
    const CUresult status = push(here, stream, std::move(copy));
    return to && status == kCudaSuccess ? settle(here, queue->device(), queue->run_all(lock))
                                        : status;
  });
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr target,
                                unsigned char value,
                                std::size_t bytes,
                                CUstream stream) {
  return call("cuMemsetD8Async", Needs::kDevice, [&](Machine& here, auto&) {
    return push(here, stream, {.run = [=, device = here_device()] {
                  {
                    const std::lock_guard lock(machine().machinery.mutex);
                    if (!machine().memory.is_device(target, bytes, true, device)) {
                      return kCudaIllegalAddress;
                    }
                  }
                  std::memset(std::bit_cast<void*>(target), value, bytes);
                  return kCudaSuccess;
                }});
  });
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call("cuStreamCreateWithPriority", Needs::kDevice, [&](Machine& here, auto&) {
    if (flags > kStreamNonBlocking || priority > 0 || priority < -5) {
      return kCudaInvalidValue;
    }
    *stream = here.streams.make({std::make_shared<Queue>(here.machinery, here_device())});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  return call("cuStreamDestroy_v2", Needs::kInit, [&](Machine& here, auto& lock) {
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const std::shared_ptr<Queue> queue = stream->queue;
    here.streams.drop(stream);
    (void)settle(here, queue->device(), queue->run_all(lock));
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return unrecordable_call("cuStreamSynchronize", [&](Machine& here, auto& lock) {
    if (!here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    const std::shared_ptr<Queue> queue = stream->queue;
    return settle(here, queue->device(), queue->run_all(lock));
  });
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", Needs::kDevice, [&](Machine& here, auto&) {
    if (flags != 0 || !here.events.has(event) || !here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    if (stream->queue->capturing()) {
      stream->queue->spoil();
      return kCudaStreamCaptureUnsupported;  // The real one would record the other stream too.
    }
    return event->queue == nullptr
               ? kCudaSuccess
               : push(here, stream, {.other = event->queue, .count = event->count});
  });
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream,
                                       CUdeviceptr flag,
                                       std::uint32_t value,
                                       unsigned how) {
  return flag_call("cuStreamWaitValue32_v2", stream, flag, how, [=] {
    return Operation{
        .until = [=] { return static_cast<std::int32_t>(flag_at(flag).load() - value) >= 0; }};
  });
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream,
                                        CUdeviceptr flag,
                                        std::uint32_t value,
                                        unsigned how) {
  return flag_call("cuStreamWriteValue32_v2", stream, flag, how, [=] {
    return Operation{.run = [=] {
      flag_at(flag).store(value);
      return kCudaSuccess;
    }};
  });
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call("cuEventCreate", Needs::kDevice, [&](Machine& here, auto&) {
    const bool timed = (flags & kEventDisableTiming) == 0;
    *event = here.events.make({.passed = timed ? std::make_shared<double>() : nullptr});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  return call("cuEventDestroy_v2", Needs::kInit, [&](Machine& here, auto&) {
    return here.events.drop(event) ? kCudaSuccess : kCudaInvalidHandle;
  });
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.events.has(event) || !here.streams.has(stream)) {
      return kCudaInvalidHandle;
    }
    if (stream->queue->capturing()) {
      stream->queue->spoil();
      return kCudaStreamCaptureUnsupported;
    }
    if (event->passed != nullptr) {
      stream->queue->push({.run = [passed = event->passed] {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        *passed = std::chrono::duration<double>(now).count() + taken.load();
        return kCudaSuccess;
      }});
    }
    event->queue = stream->queue;
    event->count = stream->queue->enqueued();
    return kCudaSuccess;
  });
}

EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return call("cuEventElapsedTime", Needs::kDevice, [&](Machine& here, auto&) {
    for (const CUevent event : {begin, end}) {
      if (!here.events.has(event) || event->passed == nullptr || event->queue == nullptr) {
        return kCudaInvalidHandle;
      }
      if (event->queue->done() < event->count) {
        return kCudaNotReady;
      }
    }
    *milliseconds = static_cast<float>(1e3 * (*end->passed - *begin->passed));
    return kCudaSuccess;
  });
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
  return unrecordable_call("cuEventSynchronize", [&](Machine& here, auto& lock) {
    if (!here.events.has(event)) {
      return kCudaInvalidHandle;
    }
    const std::shared_ptr<Queue> queue = event->queue;
    here.calls["wait with more behind"] +=
        queue != nullptr && queue->enqueued() > event->count ? 1U : 0U;
    return queue == nullptr ? kCudaSuccess
                            : settle(here, queue->device(), queue->run_until(lock, event->count));
  });
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return unrecordable_call("cuModuleLoadData", [&](Machine& here, auto&) {
    if (image == nullptr) {
      return kCudaInvalidValue;
    }
    *module = here.modules.make({});  // All kernels are in this library, whatever the image.
    return kCudaSuccess;
  });
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", Needs::kInit, [&](Machine& here, auto&) {
    return here.modules.drop(module) ? kCudaSuccess : kCudaInvalidHandle;
  });
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule /*module*/) {
  return call("cuModuleGetFunctionCount", Needs::kDevice, [&](Machine&, auto&) {
    *count = 0;  // Nothing is left to be loaded.
    return kCudaSuccess;
  });
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* /*functions*/,
                                           unsigned /*count*/,
                                           CUmodule /*module*/) {
  return kCudaSuccess;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call("cuModuleGetFunction", Needs::kDevice, [&](Machine& here, auto&) {
    Dl_info self{};
    if (!here.modules.has(module) ||
        ::dladdr(reinterpret_cast<const void*>(&heddle_cuda_emulator_alive), &self) == 0) {
      return kCudaInvalidHandle;
    }
    void* const library = ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, name);
    if (entry == nullptr || std::string_view(name).substr(0, 7) != "heddle_") {
      return kCudaNotFound;
    }
    CUfunc_st& found = here.functions[name];
    found.entry = entry;
    *function = &found;
    return kCudaSuccess;
  });
}

EXPORT CUresult cuFuncLoad(CUfunction /*function*/) {
  return kCudaSuccess;
}

EXPORT CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction /*function*/) {
  return call("cuFuncGetAttribute", Needs::kDevice, [&](Machine& here, auto&) {
    if (attribute != kFunctionBinaryVersion) {
      return kCudaInvalidValue;
    }
    *value =
        static_cast<int>(here.config.capability) / 10 * 10;  // An image for each major version.
    return kCudaSuccess;
  });
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return call("cuFuncSetAttribute", Needs::kDevice, [&](Machine&, auto&) {
    if (attribute != kFunctionDynamicSharedBytesMax || value < 0 ||
        static_cast<std::size_t>(value) > emulator::kSharedBytesMax) {
      return kCudaInvalidValue;
    }
    function->shared_bytes_max =
        std::max(function->shared_bytes_max, static_cast<std::size_t>(value));
    return kCudaSuccess;
  });
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config,
                                 CUfunction function,
                                 void** params,
                                 void** extra) {
  return call("cuLaunchKernelEx", Needs::kDevice, [&](Machine& here, auto&) {
    const emulator::Dim grid{config->gridDimX, config->gridDimY, config->gridDimZ};
    const emulator::Dim block{config->blockDimX, config->blockDimY, config->blockDimZ};
    const std::size_t shared_bytes = config->sharedMemBytes;
    std::vector<std::byte> bytes;
    if (params != nullptr || !read_params(extra, bytes) || !shape_fits(grid, block) ||
        shared_bytes > function->shared_bytes_max || !takes_attributes(here, *config)) {
      return kCudaInvalidValue;
    }
    CUstream stream = config->hStream;
    if (here.streams.has(stream) && stream->queue->device() != here_device()) {
      return kCudaInvalidContext;
    }
    here.calls["overlapping launch"] += config->numAttrs;
    if (here.config.addresses != 0 && has_ordinary_address(here.memory, bytes)) {
      return push(here, stream, {.run = [] { return kCudaIllegalAddress; }});
    }
    return push(here, stream, {.run = [entry = function->entry, grid, block, shared_bytes, bytes] {
                  return run_kernel(entry, grid, block, shared_bytes, bytes);
                }});
  });
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return call("cuStreamBeginCapture_v2", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.streams.has(stream) || mode != kCaptureThreadLocal || stream->queue->capturing()) {
      return kCudaInvalidValue;
    }
    stream->queue->begin_capture();
    return kCudaSuccess;
  });
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call("cuStreamEndCapture", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.streams.has(stream) || !stream->queue->capturing()) {
      return kCudaStreamCaptureUnmatched;
    }
    const bool spoiled = stream->queue->spoiled();
    auto recorded = stream->queue->end_capture();
    if (spoiled) {
      stream->queue->begin_capture();  // Forgets that it was.
      (void)stream->queue->end_capture();
      return kCudaStreamCaptureInvalidated;
    }
    *graph =
        here.graphs.make({std::make_shared<const std::vector<Operation>>(std::move(recorded))});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return call("cuGraphGetNodes", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.graphs.has(graph) || nodes != nullptr || count == nullptr) {
      return kCudaInvalidValue;  // Nobody asks which they are.
    }
    *count = graph->operations->size();
    return kCudaSuccess;
  });
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable,
                                            CUgraph graph,
                                            unsigned long long flags) {
  return call("cuGraphInstantiateWithFlags", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.graphs.has(graph) || flags != 0) {
      return kCudaInvalidValue;
    }
    *executable = here.executables.make({graph->operations});
    return kCudaSuccess;
  });
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::kInit, [&](Machine& here, auto&) {
    return here.graphs.drop(graph) ? kCudaSuccess : kCudaInvalidValue;
  });
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call("cuGraphExecDestroy", Needs::kInit, [&](Machine& here, auto&) {
    return here.executables.drop(executable) ? kCudaSuccess : kCudaInvalidValue;
  });
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call("cuGraphLaunch", Needs::kDevice, [&](Machine& here, auto&) {
    if (!here.executables.has(executable)) {
      return kCudaInvalidValue;
    }
    CUresult status = kCudaSuccess;
    for (const Operation& each : *executable->operations) {
      status = status == kCudaSuccess ? push(here, stream, each) : status;
    }
    return status;
  });
}

}  // extern "C"
