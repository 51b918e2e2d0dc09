#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::device {

/// Kernels for CUDA devices as they lie in the program: fat binaries, for several architectures.
/// One per set of kernels, for the program's life; its address is its identity.
struct ModuleImage {
  /// What the driver loads, one after the other. None in a build without nvcc.
  std::span<const std::span<const std::byte>> parts{};
  /// What the parts are called, those that this build does not have included: "linear_thin" is of
  /// linear_thin.cu.
  std::span<const char* const> names{};
  /// How it was made, or why there are no kernels: "nvcc 13.0.88 for sm_80, sm_90".
  const char* note = "";
  /// Of CUDA that a driver must support to load them: 13000 is 13.0.
  int driver_min = 0;
};

/// A kernel of an image. `name` is a string literal: its address is its identity too.
struct KernelId {
  const ModuleImage* module = nullptr;
  const char* name = "";
};

struct Dim3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

struct LaunchShape {
  Dim3 grid{};                     ///< Blocks.
  Dim3 block{};                    ///< Threads of each.
  std::uint32_t shared_bytes = 0;  ///< Dynamic shared memory of each block.
};

}  // namespace heddle::device
