#include "cuda_emulator/streams.h"

#include <utility>

namespace emulator {

void Queue::push(Operation operation) {
  if (capturing_) {
    recorded_.push_back(std::move(operation));
    return;
  }
  work_.push_back(std::move(operation));
  ++enqueued_;
}

CUresult Queue::run_until(std::unique_lock<std::mutex>& lock, std::uint64_t count) {
  const auto self = shared_from_this();  // A stream may be destroyed while another waits for it.
  while (done_ < count) {
    if (running_) {
      machinery_.progress.wait(lock);
      continue;
    }
    running_ = true;
    const Operation operation = std::move(work_.front());
    work_.pop_front();
    CUresult status = failed_;
    if (status == heddle::device::kCudaSuccess && operation.other != nullptr) {
      status = operation.other->run_until(lock, operation.count);
    } else if (status == heddle::device::kCudaSuccess) {
      machinery_.gate(true);
      lock.unlock();
      status = operation.run();
      lock.lock();
      machinery_.gate(false);
    }
    failed_ = status;
    running_ = false;
    ++done_;
    machinery_.progress.notify_all();
  }
  return failed_;
}

void Queue::begin_capture() {
  capturing_ = true;
  spoiled_ = false;
  recorder_ = std::this_thread::get_id();
  recorded_.clear();
}

std::vector<Operation> Queue::end_capture() {
  capturing_ = false;
  return std::exchange(recorded_, {});
}

}  // namespace emulator
