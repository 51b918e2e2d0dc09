#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "base/aligned_bytes.h"
#include "base/result.h"
#include "device/cpu/paced_copy.h"
#include "device/cpu/task_queue.h"
#include "device/cpu/thread_pool.h"
#include "device/device.h"

namespace heddle::device {

/// A stream whose work runs on the host. Tasks are only recorded; they run, in order, inside
/// synchronize(), on the thread that calls it and the pool it leads. That is not laziness: code
/// that looks at a result before it synchronises is wrong on every run on a CPU, not once in a
/// while on a GPU.
class CpuStream final : public Stream {
 public:
  /// `copy_bandwidth` in bytes/s, 0 for unlimited.
  CpuStream(std::unique_ptr<ThreadPool> pool, std::uint64_t copy_bandwidth);

  /// Records `task`: a callable of (ThreadPool&) that returns nothing or a Result<void>. What it
  /// refers to lives until synchronize(). Does not allocate once the stream is warm.
  template <class Task>
  void enqueue(Task&& task) {
    tasks_.push(std::forward<Task>(task));
  }

  void copy(std::byte* target, const std::byte* source, std::size_t bytes) override;
  /// Runs what was recorded. A task that fails is the last one to run: the rest are dropped, their
  /// input being missing, and its error is returned.
  Result<void> synchronize() override;

  [[nodiscard]] ThreadPool& pool() { return *pool_; }

  void lend_scratch(std::byte* memory, std::size_t bytes) override { lent_ = {memory, bytes}; }

  /// Memory for the task that runs, 64-byte aligned; the next task that asks has the same. What was
  /// lent, where that is enough; its own grows and never shrinks.
  [[nodiscard]] std::byte* scratch(std::size_t bytes);

 private:
  std::unique_ptr<ThreadPool> pool_;
  Pacer link_;
  TaskQueue tasks_{};
  std::span<std::byte> lent_{};
  std::size_t scratch_bytes_ = 0;
  AlignedBytes scratch_{};
};

}  // namespace heddle::device
