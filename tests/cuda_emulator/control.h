#pragma once

#include <cstddef>

#include "device/cuda/driver_api.h"

// What tests may ask of the emulated driver beside what a driver does. Looked up by name, as the
// driver's functions are: tests do not link with it.

extern "C" {

/// Makes the machine anew, as no process has used it: everything that was taken of it is gone.
/// `text` is a list like "devices=2,memory=64MiB", empty for the defaults; see config.h for the
/// keys. Without a call the environment's HEDDLE_CUDA_EMULATOR is the text. Returns what is wrong
/// with the text, or "". No thread may use the driver meanwhile.
const char* heddle_cuda_emulator_configure(const char* text);

/// The `nth` call of `call` from now on (1 is the next) returns `status`, once. As a call counts
/// "kernel", the running of one, whose failing loses the device. Counted beside is "copy in", a
/// copy from the host to a device by its copy engine, "overlapping
/// launch", and "wait with more behind", for an event behind which more is enqueued.
void heddle_cuda_emulator_fail(const char* call, unsigned nth, heddle::device::CUresult status);

/// Calls of `call` from now on wait before they do anything, as if the driver took long over them,
/// until the same is said with `held` 0. Waits until one does where `held` is 2.
void heddle_cuda_emulator_hold(const char* call, int held);

/// How often `call` was called since the machine was configured.
unsigned long heddle_cuda_emulator_calls(const char* call);

/// What was taken and not given back: "2 streams, 14 pages"; "" for nothing. Valid until the next
/// call.
const char* heddle_cuda_emulator_alive();

/// Work of an emulated library that runs takes so much longer, by events that are timed, and by
/// nothing else.
void heddle_cuda_emulator_take(double seconds);

/// Enqueues work of an emulated library (cuBLASLt): work(context) is called in its turn with a copy
/// of `bytes` bytes at `context`, which is aligned to 16. True: it went well; else the device is
/// lost. Recorded as a kernel is.
heddle::device::CUresult heddle_cuda_emulator_enqueue(heddle::device::CUstream stream,
                                                      bool (*work)(const void* context),
                                                      const void* context,
                                                      std::size_t bytes);
}
