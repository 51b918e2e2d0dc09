#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

#include <sys/types.h>

namespace heddle::external {

/// A process that cannot be taken for another: numbers are used again.
struct ProcessName {
  pid_t pid = 0;                 ///< 0: none.
  std::uint64_t start_time = 0;  ///< ProcessFacts'.
  friend bool operator==(const ProcessName&, const ProcessName&) = default;
};
/// Of a process that is there; none otherwise.
[[nodiscard]] ProcessName name_process(pid_t pid);

/// What a second life of ours must know of an engine that the first one left running.
struct Record {
  std::string model{};
  ProcessName owner{};   ///< The life that started it.
  ProcessName leader{};  ///< Its first process; none while it is being started.
  std::string mark{};    ///< OwnSet's.
  std::string cgroup{};  ///< OwnSet::directory.
  /// Of a container the program that runs it, and its name, which is `mark`; empty: none.
  std::string runtime{};
  friend bool operator==(const Record&, const Record&) = default;
};

/// A file with a record, which goes with the object: with an engine that has ended.
class RecordFile {
 public:
  RecordFile() = default;
  /// Makes the directory where there is none. kUnavailable where it cannot be written,
  /// kFailedPrecondition where others can write it too.
  static Result<RecordFile> write(const std::string& directory, const Record& record);
  /// Replaces what it says. Likewise.
  [[nodiscard]] Result<void> rewrite(const Record& record) const;
  RecordFile(RecordFile&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  RecordFile& operator=(RecordFile&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  ~RecordFile();

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  std::string path_{};
};

/// What was left behind in `directory` (which need not exist); files that are no records are
/// skipped, and all that others could have written.
[[nodiscard]] std::vector<Record> read_records(const std::string& directory);

/// Ends the engines that lives of ours left running which have ended, and forgets them. They are
/// not taken over: their sockets and their output went with that life. Returns how many there were;
/// blocks until they have ended. Errors as end_leftover(), after all were tried.
Result<std::size_t> end_leftovers(const std::string& directory, Duration patience);

}  // namespace heddle::external
