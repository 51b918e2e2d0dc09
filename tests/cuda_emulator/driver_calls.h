#pragma once

// What the driver's functions have in common: how a call begins, and what it does to streams. For
// the files that define them, and for nobody else: it brings the driver's names with it.

#include <mutex>
#include <utility>

#include "cuda_emulator/machine.h"

using namespace heddle::device;  // NOLINT(google-build-using-namespace): the driver's names.
using emulator::current_context;
using emulator::machine;
using emulator::Machine;
using emulator::Operation;
using emulator::Queue;

#define EXPORT __attribute__((visibility("default")))

// All that is defined, as the product declares it: what differs does not compile.
extern "C" {
#define HEDDLE_DECLARE(name, ...) EXPORT CUresult name(__VA_ARGS__);
HEDDLE_CUDA_CALLS(HEDDLE_DECLARE)
#undef HEDDLE_DECLARE
}

enum class Needs { kNothing, kInit, kDevice };

/// Runs `body(machine, lock)` as the call named so, if it is to run.
template <class Body>
CUresult call(const char* name, Needs needs, const Body& body) {
  Machine& here = machine();
  here.holds.pass(name);
  std::unique_lock lock(here.machinery.mutex);
  const CUresult status = here.enter(name, needs != Needs::kNothing, needs == Needs::kDevice);
  return status == kCudaSuccess ? body(here, lock) : status;
}

/// The same for calls that wait or allocate, which spoil what the thread records.
template <class Body>
CUresult unrecordable_call(const char* name, const Body& body) {
  return call(name, Needs::kDevice, [&](Machine& here, std::unique_lock<std::mutex>& lock) {
    return here.spoils_capture() ? kCudaStreamCaptureUnsupported : body(here, lock);
  });
}

/// The same for calls that give memory back. On a lost device they report its loss, but do it all
/// the same, so that tests find what was forgotten.
template <class Body>
CUresult giving_back(const char* name, const Body& body) {
  return call(name, Needs::kInit, [&](Machine& here, std::unique_lock<std::mutex>& lock) {
    if (current_context() == nullptr) {
      return kCudaInvalidContext;
    }
    if (here.spoils_capture()) {
      return kCudaStreamCaptureUnsupported;
    }
    const std::size_t device = current_context()->device;
    (void)here.run_device(lock, device);  // It waits for all that may use the memory.
    const CUresult status = body(here);
    return status == kCudaSuccess ? here.lost[device] : status;
  });
}

/// What went wrong in a stream is the device's from then on.
inline CUresult settle(Machine& here, std::size_t device, CUresult status) {
  if (status != kCudaSuccess) {
    here.lose(device, status);
  }
  return status;
}

inline std::size_t here_device() {
  return current_context()->device;
}

/// Enqueues on `stream`, or records.
inline CUresult push(Machine& here, CUstream stream, Operation operation) {
  if (!here.streams.has(stream)) {
    return kCudaInvalidHandle;
  }
  if (stream->queue->spoiled()) {
    return kCudaStreamCaptureInvalidated;
  }
  stream->queue->push(std::move(operation));
  return kCudaSuccess;
}
