#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace heddle::collective {

/// A barrier of processes or threads, which lives in memory that they share and begins as zeros.
///
/// The last to arrive changes a word that the others wait for (the sense of a sense-reversing
/// barrier, with more values than two), first by looking and then, by the kernel's futex, asleep.
/// Nobody holds anything: whoever dies leaves a barrier that never opens again, until somebody
/// abandons it.
class SharedBarrier {
 public:
  /// Waits until `ranks` have arrived; what they wrote before is seen after. Looks up to `spins`
  /// times before it sleeps. kUnavailable if the barrier is abandoned before all have arrived.
  Result<void> arrive_and_wait(std::int64_t ranks, int spins);

  /// How often it has opened, modulo 2^31. The same for all who are to arrive next.
  [[nodiscard]] std::uint32_t phase() const;

  /// Ends it for good and wakes everybody. Any thread of any process.
  void abandon();
  /// The word whose lowest bit is set once it is abandoned, for a device that reads it.
  [[nodiscard]] const std::uint32_t* word() const {
    static_assert(sizeof(word_) == sizeof(std::uint32_t));
    return reinterpret_cast<const std::uint32_t*>(&word_);
  }

 private:
  static constexpr std::uint32_t kAbandoned = 1;  ///< The lowest bit of the word; phases are above.
  static constexpr std::uint32_t kOnePhase = 2;

  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> arrived_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace heddle::collective
