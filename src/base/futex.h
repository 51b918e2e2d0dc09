#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include "base/time.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/// Waiting for a word that processes share. std::atomic's own wait() is for the threads of one.
namespace heddle {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);  // Else it is no shared memory's.

/// Sleeps until somebody wakes, `patience` is over (0: never), or for no reason; not at all where
/// `word` is not `old` any more. The caller looks why.
inline void futex_wait(std::atomic<std::uint32_t>& word,
                       std::uint32_t old,
                       Duration patience = {}) {
  const timespec time{.tv_sec = patience.count() / 1'000'000'000,
                      .tv_nsec = patience.count() % 1'000'000'000};
  (void)::syscall(
      SYS_futex, &word, FUTEX_WAIT, old, patience == Duration{} ? nullptr : &time, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Of a loop that looks at a word: lets the core's other thread have more of it.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace heddle
