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

Result<void> CpuStream::synchronize() {
  return tasks_.run_all(*pool_);
}

}  // namespace heddle::device
