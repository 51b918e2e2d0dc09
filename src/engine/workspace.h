#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "engine/activations.h"
#include "spec/model_spec.h"

namespace heddle::engine {

/// What a pass of a model has only while it runs, one pass after the other: activations, and
/// scratch that operations take for themselves. A function of the model, the kind of device and the
/// tokens of a step alone, so that what operations make of their scratch is, too.
struct Workspace {
  Activations activations{};
  std::byte* scratch = nullptr;  ///< 256-byte aligned, as the memory is that it was placed in.
  std::size_t scratch_bytes = 0;
};

/// Lays out the workspace for passes of `model`, with matrices of `weights`, of up to `tokens`
/// tokens, from `memory` on, which is 256-byte aligned.
[[nodiscard]] Workspace place_workspace(device::Kind kind,
                                        const spec::ModelSpec& model,
                                        spec::DType weights,
                                        std::int64_t tokens,
                                        std::byte* memory);

/// Bytes of that. Models of a device take turns, so it needs the largest of its models'. Beside it
/// an engine has a few MiB for what is sent to passes and what they send back.
[[nodiscard]] std::uint64_t workspace_bytes(device::Kind kind,
                                            const spec::ModelSpec& model,
                                            spec::DType weights,
                                            std::int64_t tokens);

/// Bytes of a device that records steps with which it has CUDA graphs enough for `model`: of decode
/// steps of some sizes, each of which has two. 0 for a stage, whose steps are not recorded.
[[nodiscard]] std::uint64_t graph_bytes(const spec::ModelSpec& model);

}  // namespace heddle::engine
