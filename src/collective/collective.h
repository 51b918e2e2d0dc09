#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace heddle::collective {

/// What the ranks of a group, which share the work on one model, do together. Every rank calls the
/// same operations in the same order with arguments of the same sizes; each blocks until all ranks
/// have called it. One rank may be a thread or a process. Used by one thread per rank, but for
/// abandon().
///
/// An error is for good: of the ranks that are in an operation none may get its result, all later
/// ones fail, and a new group has to be made. kUnavailable after abandon(); kCorrupt where the
/// ranks did not call the same, which is seen by all of them and ends the group.
class Collective {
 public:
  virtual ~Collective() = default;

  [[nodiscard]] virtual std::int64_t rank() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Replaces each element by the sum of that element over all ranks, added in rank order, so that
  /// all ranks get the same bits.
  virtual Result<void> all_reduce(std::span<float> data) = 0;

  /// `matrix` is rows of ends.back() floats, and rank r has filled in columns [ends[r - 1],
  /// ends[r]) of all of them (from 0 for the first rank). Fills in the others.
  virtual Result<void> all_gather(std::span<float> matrix, std::span<const std::int64_t> ends) = 0;

  /// Succeeds where all ranks give the same value.
  virtual Result<void> agree(std::uint64_t value) = 0;

  /// The least of what the ranks give.
  virtual Result<std::int64_t> least(std::int64_t value) = 0;

  /// Ends the group: who waits in an operation returns at once. Any thread.
  virtual void abandon() = 0;
};

}  // namespace heddle::collective
