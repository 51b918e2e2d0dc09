#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_emulator/threads.h"

/// What a thread of an emulated kernel can do: the shim spells CUDA's names with these. Called only
/// from within run().
namespace emulator {

/// Most bytes that a lane hands to its warp at once.
constexpr std::size_t kSlotBytes = 64;

const Dim& thread_index();
const Dim& block_index();
const Dim& block_dim();
const Dim& grid_dim();
/// The thread's place in its warp.
unsigned lane();

/// Returns when all threads of the block that have not ended have called it.
void sync_block();

using Slots = std::array<std::array<std::byte, kSlotBytes>, kWarpThreads>;

/// Hands `bytes` at `value` to the other 31 lanes of the warp, all of which must call it, and
/// returns what each handed in. Valid until the lane's next call.
const Slots& exchange(const void* value, std::size_t bytes);

/// The same for a value: element i of the result is lane i's.
template <class T>
std::array<T, kWarpThreads> exchange(const T& value) {
  static_assert(sizeof(T) <= kSlotBytes);
  const Slots& slots = exchange(&value, sizeof(T));
  std::array<T, kWarpThreads> all;
  for (unsigned i = 0; i < kWarpThreads; ++i) {
    std::memcpy(&all[i], slots[i].data(), sizeof(T));
  }
  return all;
}

/// The same, where the lane wants only that of lane `source`.
template <class T>
T exchange_for(const T& value, unsigned source) {
  static_assert(sizeof(T) <= kSlotBytes);
  T wanted;
  std::memcpy(&wanted, exchange(&value, sizeof(T))[source].data(), sizeof(T));
  return wanted;
}

/// The block's dynamic shared memory: 16-aligned, with nothing mapped behind its end.
std::byte* dynamic_shared();

/// Copies that happen as late as is allowed: when the thread waits for their group. Of 16 bytes,
/// those from `valid` on become zeros. What is not waited for never happens.
void copy_async_16(void* target, const void* source, unsigned valid);
void commit_copies();
/// Waits for all groups but the `left` committed last.
void wait_copies(unsigned left);

/// Products of warpgroups, which happen as late as is allowed too: when the thread waits for their
/// group. `product` does this thread's part and may exchange with the warp. It fails where the
/// thread has not called begin_products() since it last waited, and where a thread of the block has
/// waited for copies and not called show_copies() since: products may not see those.
void begin_products();
void show_copies();
void begin_product(std::function<void()> product);
void commit_products();
void wait_products(unsigned left);

/// The address of shared memory within its window, and what is there; fails outside of it.
std::uint32_t shared_address(const std::byte* at);
const std::byte* shared_at(std::uint32_t address);

/// Ends the launch: run() returns false.
[[noreturn]] void fail(const char* what);

}  // namespace emulator
