#include "device/cpu/cpu_stream.h"

#include <atomic>

namespace heddle::device {

CpuStream::CpuStream(std::unique_ptr<ThreadPool> pool, std::uint64_t copy_bandwidth)
    : pool_(std::move(pool)), link_(copy_bandwidth) {}

void CpuStream::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  enqueue([this, target, source, bytes](ThreadPool&) {
    const std::atomic<bool> never{false};
    return paced_copy(target, source, bytes, link_, never);
  });
}

std::byte* CpuStream::scratch(std::size_t bytes) {
  if (bytes <= lent_.size()) {
    return lent_.data();
  }
  if (bytes > scratch_bytes_) {
    scratch_.reset();
    scratch_ = allocate_aligned(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

Result<void> CpuStream::synchronize() {
  return tasks_.run_all(*pool_);
}

}  // namespace heddle::device
