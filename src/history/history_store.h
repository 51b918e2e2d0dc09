#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "history/load_book.h"
#include "history/traffic.h"
#include "policy/load_history.h"

namespace heddle::history {

/// The loads of one window, by the models' names: ids do not outlive a process.
using ModelLoads = std::vector<std::pair<std::string, policy::Load>>;
/// The loads of models in windows.
using PastLoads = std::map<std::string, std::vector<WindowLoad>>;

enum class Access : std::uint8_t {
  kReadWrite,
  kReadOnly,  ///< What was there is read; what is recorded is forgotten.
  kNone,      ///< Nothing is read either.
};

/// The load of every model in past windows, and what was asked of it then, in the file `history.db`
/// of a directory. Nothing here fails: what cannot be had is missing, with one warning in the log.
/// Writing is left to a thread of its own, so that no call but open() and read_all() waits for a
/// disk. One thread calls it.
///
/// Wall clocks jump. A window is entered under the number it has by the clock of that time, and
/// replaces what had just that number, nothing else; how much is kept counts windows, not time.
/// So neither a clock that was wrong for a while nor its correction destroys what was right.
class HistoryStore {
 public:
  static constexpr const char* kFile = "history.db";
  static constexpr std::int64_t kVersion = 1;  ///< Of what is in it.
  /// Batches that wait to be written; beyond it the newest are dropped, with a warning.
  static constexpr std::size_t kMostWaiting = 1024;

  /// `window` > 0: their length; what was recorded with another length is not seen. A directory
  /// that is missing is made. A file that is damaged is renamed to `history.db.corrupt-TIME`.
  static std::unique_ptr<HistoryStore> open(const std::string& directory, Duration window);
  /// Writes what waits.
  ~HistoryStore();
  HistoryStore(const HistoryStore&) = delete;
  HistoryStore& operator=(const HistoryStore&) = delete;

  [[nodiscard]] Access access() const;

  /// By model, ascending. Only windows before `before`, the one under way: those after it were
  /// entered by a clock that was ahead.
  [[nodiscard]] PastLoads read_all(std::int64_t before);

  /// Enters a window that has ended, in one transaction.
  void record(std::int64_t window, ModelLoads loads);
  /// Enters windows that others have measured, in one transaction.
  void enter(PastLoads loads);

  /// Adds to what was asked in a window, in one transaction.
  void count(std::int64_t window, ModelTraffic traffic);

  /// Keeps the last `windows` > 0 windows in which anything was recorded, and forgets those of
  /// other lengths.
  void prune(std::int64_t windows);

  /// Returns when all calls so far are in the file, or have failed.
  void flush();

 private:
  class Impl;
  explicit HistoryStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::history
