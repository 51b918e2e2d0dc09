#include "collective/shared_barrier.h"

#include "base/futex.h"

namespace heddle::collective {
namespace {

Error abandoned() {
  return {Code::kUnavailable, "wait for the other ranks: the group was abandoned"};
}

}  // namespace

Result<void> SharedBarrier::arrive_and_wait(std::int64_t ranks, int spins) {
  const std::uint32_t old = word_.load(std::memory_order_acquire);
  if ((old & kAbandoned) != 0) {
    return abandoned();
  }
  // Each arrival releases what was written before, and the last acquires all of it.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) {
    arrived_.store(0, std::memory_order_relaxed);
    word_.fetch_add(kOnePhase, std::memory_order_seq_cst);
    // Either a sleeper has counted itself by now, or it will see the new word before it sleeps.
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      futex_wake_all(word_);
    }
    return {};
  }
  for (std::uint32_t now = old; (now & ~kAbandoned) == (old & ~kAbandoned);) {
    if ((now & kAbandoned) != 0) {
      return abandoned();
    }
    if (spins > 0) {
      --spins;
      spin_pause();
    } else {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      futex_wait(word_, old);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    now = word_.load(std::memory_order_acquire);
  }
  return {};
}

std::uint32_t SharedBarrier::phase() const {
  return word_.load(std::memory_order_acquire) / kOnePhase;
}

void SharedBarrier::abandon() {
  word_.fetch_or(kAbandoned, std::memory_order_seq_cst);
  futex_wake_all(word_);
}

}  // namespace heddle::collective
