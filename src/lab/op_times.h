#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"

namespace heddle::lab {

/// What an operation of a model's shape took, by itself.
struct OpSample {
  std::string op{};          ///< "qkv", "attention of a prompt", ...
  std::int64_t tokens = 0;   ///< That go through it.
  std::int64_t context = 0;  ///< Of attention: what each of the sequences had before.
  double seconds = 0;
  double bytes = 0;  ///< Of weights, or of keys and values, that it reads.
  double flops = 0;
};

/// How far to go: at most so many tokens at once, and so many of context.
struct OpLimits {
  std::int64_t tokens = 2048;
  std::int64_t context = 8192;
  std::int64_t repeats = 5;
};

/// Times the products of a layer, the head, and attention over prompts and in decode steps, in the
/// shapes of `model`: each many times in one CUDA graph, whose replays count, so that the host's
/// share does not. Over memory beside the device's pages, which is given back; what it has no
/// memory for is left out. kFailedPrecondition where the device does not record.
Result<std::vector<OpSample>> time_ops(device::Device& device,
                                       const spec::ModelSpec& model,
                                       spec::DType dtype,
                                       const OpLimits& limits);

}  // namespace heddle::lab
