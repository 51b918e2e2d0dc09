#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/driver_api.h"

namespace emulator {

using heddle::device::CUresult;

class Queue;

/// One piece of work of a stream: something to run, a place in another stream to wait for, or
/// something else.
struct Operation {
  std::function<CUresult()> run{};
  std::function<bool()> until{};   ///< Wait until it says so, with the lock.
  std::shared_ptr<Queue> other{};  ///< Wait until it ran its first `count` operations.
  std::uint64_t count = 0;
};

/// What Queues share: the lock of the whole emulated machine, which is not held while work runs.
struct Machinery {
  std::mutex mutex{};
  std::condition_variable progress{};
  /// Runs something of any stream that need not wait, with the lock, which is given up meanwhile.
  /// False where there is nothing.
  std::function<bool(std::unique_lock<std::mutex>& lock)> advance{};
  /// Says before and after running that devices' memory may be touched. With the lock.
  std::function<void(bool open)> gate{};
};

/// The work of a stream. Nothing runs before somebody waits for it: that is as late as the driver
/// may be, and what does not wait for what it needs finds out. A stream that waits for anything but
/// a stream, which others have to bring about, has the others run. All with the machine's lock.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(Machinery& machinery, std::size_t device) : machinery_(machinery), device_(device) {}

  [[nodiscard]] std::size_t device() const { return device_; }
  /// Appends work, or records it.
  void push(Operation operation);
  /// How many operations were ever enqueued.
  [[nodiscard]] std::uint64_t enqueued() const { return enqueued_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  /// Runs the first `count` operations, with those of other streams that they wait for; gives the
  /// lock up meanwhile. After the first that failed the others are dropped; returns its status,
  /// each time.
  CUresult run_until(std::unique_lock<std::mutex>& lock, std::uint64_t count);
  /// Whether there is work that would not wait, and that nobody is at.
  [[nodiscard]] bool ready() const;
  CUresult run_all(std::unique_lock<std::mutex>& lock) { return run_until(lock, enqueued_); }

  /// Capture: between the two, push notes down.
  void begin_capture();
  std::vector<Operation> end_capture();
  [[nodiscard]] bool capturing() const { return capturing_; }
  /// The thread that records.
  [[nodiscard]] std::thread::id recorder() const { return recorder_; }
  /// Something happened that cannot be recorded.
  void spoil() { spoiled_ = true; }
  [[nodiscard]] bool spoiled() const { return spoiled_; }

 private:
  Machinery& machinery_;
  std::size_t device_;
  std::deque<Operation> work_{};
  std::uint64_t enqueued_ = 0;
  std::uint64_t done_ = 0;
  bool running_ = false;
  CUresult failed_ = 0;
  bool capturing_ = false;
  bool spoiled_ = false;
  std::thread::id recorder_{};
  std::vector<Operation> recorded_{};
};

}  // namespace emulator
