#include "cuda_emulator/streams.h"

#include <chrono>
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
    } else if (status == heddle::device::kCudaSuccess && operation.until) {
      // Another process or the host's code may bring it about, who do not tell.
      while (!operation.until()) {
        if (!machinery_.advance(lock)) {
          machinery_.progress.wait_for(lock, std::chrono::microseconds(200));
        }
      }
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

bool Queue::ready() const {
  if (running_ || work_.empty()) {
    return false;
  }
  const Operation& next = work_.front();
  return next.other != nullptr ? next.other->done() >= next.count
                               : next.until == nullptr || next.until();
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
