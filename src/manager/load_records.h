#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "core/manager/manager_core.h"
#include "history/history_store.h"
#include "policy/load_history.h"

namespace heddle::manager {

/// What is kept of models' loads from one run to the next, in the words of ManagerCore. Without a
/// directory nothing is kept. Loop thread.
class LoadRecords {
 public:
  LoadRecords() = default;
  ~LoadRecords() { save(); }
  LoadRecords(const LoadRecords&) = delete;
  LoadRecords& operator=(const LoadRecords&) = delete;

  /// Reads what earlier runs measured in windows of `window`, of which a `day` has a whole number;
  /// waits for the disk.
  void open(const std::string& directory, Duration window, Duration day);

  /// What is known of a model by its name; nullopt: nothing.
  [[nodiscard]] std::optional<core::LoadRemembered> recall(const std::string& name, ModelId model);

  /// A window of a model has ended. Windows are written when the next one is begun.
  void note(const std::string& model, std::int64_t window, policy::Load load);
  /// Writes what was noted.
  void save();

  /// UTC less steady time, now.
  [[nodiscard]] Duration take_clock_offset();
  /// Whether the wall clock was set, by more than a tenth of a window, since that was asked last.
  [[nodiscard]] bool clock_moved() const;

 private:
  std::unique_ptr<history::HistoryStore> store_{};
  std::map<std::string, std::vector<history::WindowLoad>> known_{};
  std::int64_t window_ = -1;  ///< Of `noted_`.
  history::ModelLoads noted_{};
  Duration window_length_{};
  Duration clock_offset_{};
  std::int64_t kept_ = 0;  ///< Windows in the file at most.
};

}  // namespace heddle::manager
