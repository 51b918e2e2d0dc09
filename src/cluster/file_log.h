#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"
#include "cluster/registry.h"

namespace heddle::cluster {

/// One line of the log: what became of a record.
struct LogLine {
  Record record{};
  bool removed = false;
  Duration life{};  ///< 0: for ever.
};
/// Reads and writes a line, without its end. kCorrupt where it is none.
[[nodiscard]] Result<LogLine> parse_log_line(std::string_view line);
[[nodiscard]] std::string write_log_line(const LogLine& line);

/// What stands first in the file: which store this is, and the revision of the records that follow
/// and are not newer.
struct LogHead {
  std::string store{};
  Revision base = 0;
};
[[nodiscard]] Result<LogHead> parse_log_head(std::string_view line);
[[nodiscard]] std::string write_log_head(const LogHead& head);

/// Records of one machine's processes: `DIRECTORY/records`, to which changes are appended. Whoever
/// writes holds the lock `DIRECTORY/lock`; whoever reads needs none. A line that its writer did not
/// end, as it was killed, counts for nothing, and the next writer cuts it off. When most of a file
/// is old it is written anew and renamed, and readers finish the old one first.
///
/// It survives the end of any process, and not that of the machine: nothing is forced to disk.
class FileLog {
 public:
  /// Makes the directory where there is none. kInvalidArgument where that cannot be.
  static Result<FileLog> open(std::string directory);

  /// Takes note of what others have done. kCorrupt, naming file and line, where it makes no sense.
  [[nodiscard]] Result<void> read();
  /// Holds the lock until the result is gone, and reads. Empty: another process has it.
  [[nodiscard]] Result<std::optional<Descriptor>> lock();
  /// Appends a change, with the next revision; the lock is held, and all is read.
  [[nodiscard]] Result<Revision> append(LogLine line);

  [[nodiscard]] const std::map<std::string, LogLine, std::less<>>& records() const {
    return records_;
  }
  [[nodiscard]] Revision revision() const { return revision_; }
  /// Changes after a revision, oldest first; nothing where some of them are no longer known.
  [[nodiscard]] std::optional<std::vector<LogLine>> changes_after(Revision after) const;
  /// Counts how often what was known has turned out to be no part of the store: its file is of
  /// another store, or from an earlier day.
  [[nodiscard]] std::uint64_t breaks() const { return breaks_; }

 private:
  explicit FileLog(std::string directory) : directory_(std::move(directory)) {}
  [[nodiscard]] std::string path() const { return directory_ + "/records"; }
  Result<void> read_rest();
  Result<void> take(std::string_view line);
  Result<bool> reopen();
  Result<void> rewrite();
  [[nodiscard]] bool replaced() const;

  std::string directory_;
  Descriptor file_{};
  LogHead head_{};
  std::uint64_t offset_ = 0;  ///< Of what is not read yet, in the file.
  std::uint64_t lines_ = 0;   ///< Read from the file.
  std::uint64_t breaks_ = 0;
  Revision revision_ = 0;
  std::map<std::string, LogLine, std::less<>> records_{};
  Revision known_after_ = 0;        ///< All changes after this one are in `changes_`.
  std::vector<LogLine> changes_{};  ///< Oldest first.
  std::uint64_t live_bytes_ = 0;    ///< Roughly what a new file would have.
};

}  // namespace heddle::cluster
