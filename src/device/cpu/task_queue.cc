#include "device/cpu/task_queue.h"

namespace heddle::device {

Result<void> TaskQueue::run_all(ThreadPool& pool) {
  Result<void> outcome;
  running_ = true;
  for (const Entry& entry : entries_) {
    outcome = entry.run(entry.task, pool);
    if (!outcome) {
      break;
    }
  }
  running_ = false;
  clear();
  return outcome;
}

void TaskQueue::clear() {
  for (const Entry& entry : entries_) {
    entry.destroy(entry.task);
  }
  entries_.clear();
  chunks_used_ = 0;
  chunk_bytes_ = kChunkBytes;
}

void* TaskQueue::allocate(std::size_t bytes) {
  HEDDLE_CHECK(!running_);
  constexpr std::size_t kAlign = alignof(std::max_align_t);
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  if (bytes > kChunkBytes - chunk_bytes_) {
    if (chunks_used_ == chunks_.size()) {
      chunks_.push_back(std::make_unique<std::byte[]>(kChunkBytes));  // NOLINT(*-avoid-c-arrays)
    }
    ++chunks_used_;
    chunk_bytes_ = 0;
  }
  void* const place = &chunks_[chunks_used_ - 1][chunk_bytes_];
  chunk_bytes_ += bytes;
  return place;
}

}  // namespace heddle::device
