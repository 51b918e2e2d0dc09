#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/thread.h"

namespace heddle {

/// A file of lines, written by a thread of its own, so that a slow disk holds nobody up. Lines that
/// wait are bounded: when the disk is that slow the log ends there, with a warning, because a log
/// with a hole cannot be replayed. At `bytes_max` the file becomes `path`.1, instead of the one
/// before, and a new one begins; a replay needs both, and no more than that was ever written.
class EventLog {
 public:
  struct Options {
    std::string path{};
    std::uint64_t bytes_max = std::uint64_t{256} << 20U;
    std::size_t waiting_bytes_max = std::size_t{16} << 20U;
  };

  /// Empties or creates the file. kUnavailable, with the path, if that cannot be done.
  static Result<std::unique_ptr<EventLog>> create(Options options);
  /// Writes what waits.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Appends lines, each with its end. Any thread.
  void write(const std::string& lines);

 private:
  explicit EventLog(Options options) : options_(std::move(options)) {}
  void run();
  /// Writes to the file, turning it over when it is full. False when the disk refuses.
  [[nodiscard]] bool put(const std::string& lines);

  Options options_;
  int fd_ = -1;                ///< The thread's, once it runs.
  std::uint64_t written_ = 0;  ///< To the file that fd_ is.
  std::mutex mutex_{};
  std::condition_variable woken_{};
  std::string waiting_{};  // Guarded by mutex_.
  bool stopping_ = false;  // Guarded by mutex_.
  bool given_up_ = false;  // Guarded by mutex_.
  Thread thread_{};
};

}  // namespace heddle
