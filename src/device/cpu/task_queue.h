#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"

namespace heddle::device {

class ThreadPool;

/// Callables of any type, recorded to be run once, in order. They live side by side in chunks that
/// are kept, so that a queue that has seen a step allocates nothing for the next. Used by one
/// thread; a task may not push.
class TaskQueue {
 public:
  TaskQueue() = default;
  ~TaskQueue() { clear(); }
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Records a callable of (ThreadPool&) that returns nothing or a Result<void>.
  template <class Task>
  void push(Task&& task) {
    using Stored = std::decay_t<Task>;
    static_assert(sizeof(Stored) <= kChunkBytes && alignof(Stored) <= alignof(std::max_align_t));
    void* place = allocate(sizeof(Stored));
    entries_.push_back({.task = new (place) Stored(std::forward<Task>(task)),
                        .run = &run<Stored>,
                        .destroy = &destroy<Stored>});
  }

  /// Runs tasks until one fails, whose error is returned, and forgets them all.
  Result<void> run_all(ThreadPool& pool);
  /// Forgets all tasks unrun.
  void clear();
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10U;

  struct Entry {
    void* task = nullptr;
    Result<void> (*run)(void* task, ThreadPool& pool) = nullptr;
    void (*destroy)(void* task) = nullptr;
  };

  template <class Stored>
  static Result<void> run(void* task, ThreadPool& pool) {
    if constexpr (std::is_void_v<std::invoke_result_t<Stored&, ThreadPool&>>) {
      (*static_cast<Stored*>(task))(pool);
      return {};
    } else {
      return (*static_cast<Stored*>(task))(pool);
    }
  }
  template <class Stored>
  static void destroy(void* task) {
    static_cast<Stored*>(task)->~Stored();
  }
  void* allocate(std::size_t bytes);

  std::vector<Entry> entries_{};
  std::vector<std::unique_ptr<std::byte[]>> chunks_{};  // NOLINT(*-avoid-c-arrays): raw storage.
  std::size_t chunks_used_ = 0;                         ///< Chunks that hold tasks.
  std::size_t chunk_bytes_ = kChunkBytes;               ///< Used of the last of them.
  bool running_ = false;
};

}  // namespace heddle::device
