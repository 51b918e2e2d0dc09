#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

struct Dim {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// Threads that a block may have, threads of a warp, and dynamic shared memory that a block may ask
/// for on Hopper.
constexpr unsigned kBlockThreadsMax = 1024;
constexpr unsigned kWarpThreads = 32;
constexpr std::size_t kSharedBytesMax = 227 * 1024;

/// Runs all threads of a launch of `entry`, a symbol that HEDDLE_KERNEL made (shim), which is given
/// its parameter struct through `params`. Blocks run one after another and the threads of a block
/// as fibers of the calling OS thread, from barrier to barrier, in an order that differs from
/// barrier to barrier, block to block and launch to launch: what relies on an order shows. Shared
/// memory is full of NaN before each block. One launch at a time; others wait.
///
/// Returns false where the launch is bad or a thread did what it must not, as far as that shows:
/// touched what is not mapped, was misaligned, left its dynamic shared memory at the upper end, or
/// waited for a thread that never came. Memory is then as the threads left it.
bool run(void* entry,
         Dim grid,
         Dim block,
         std::size_t shared_bytes,
         const void* params,
         std::size_t param_bytes);

/// What the last run() that returned false found; "" before the first.
const char* last_failure();

/// Makes orders from here on follow from `seed`.
void seed_orders(std::uint64_t seed);

}  // namespace emulator
