#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::ops {

/// Memory of each rank of a group on GPUs that the kernels of all of them reach, through which they
/// exchange data without the host: one piece on each GPU, which the others map. What is in it is
/// the kernels' affair. All ranks enqueue the same exchanges in the same order, one at a time; that
/// their shapes are the same is for the caller to see to.
struct PeerArea {
  static constexpr std::size_t kRanksMax = 8;
  static constexpr std::size_t kBytes = std::size_t{2} << 20U;  ///< Of each piece, at least.
  /// So many at its beginning are zero before the first exchange.
  static constexpr std::size_t kZeroBytes = std::size_t{4} << 10U;

  /// By rank, at the addresses of this rank's device.
  std::array<std::byte*, kRanksMax> memory{};
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  /// Its lowest bit is set once the group is abandoned: who waits for another rank gives up, and
  /// what comes out is no matter. Memory of the host that the device reads.
  const std::uint32_t* abandoned = nullptr;
};

}  // namespace heddle::ops
