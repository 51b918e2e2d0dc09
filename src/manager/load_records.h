#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"
#include "core/manager/manager_core.h"
#include "history/history_store.h"
#include "history/load_book.h"
#include "policy/load_history.h"

namespace heddle::manager {

/// What came of loads that others have measured.
struct Learnt {
  std::size_t windows = 0;         ///< That are new here, or greater than was known.
  std::size_t ahead = 0;           ///< Left out: they have not begun, or are under way.
  std::set<std::string> models{};  ///< Of `windows`.
};

/// What is kept of models' loads from one run to the next, in the words of ManagerCore. Without a
/// directory nothing is kept. Loop thread.
class LoadRecords {
 public:
  LoadRecords() = default;
  ~LoadRecords() { save(); }
  LoadRecords(const LoadRecords&) = delete;
  LoadRecords& operator=(const LoadRecords&) = delete;

  /// Reads what earlier runs measured in windows of `window`, of which a `day` has a whole number;
  /// waits for the disk. Does nothing where that is open already.
  void open(const std::string& directory, Duration window, Duration day);

  /// What is known of a model by its name, in windows that have ended: `most` of them from `from`
  /// on. nullopt: nothing.
  [[nodiscard]] std::optional<core::LoadRemembered> recall(
      const std::string& name,
      ModelId model,
      std::int64_t from = 0,
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  /// A request for the model has come.
  void count_arrival(const std::string& model);
  /// One has ended, with so many tokens. What comes and ends is written for each window.
  void count_end(const std::string& model, std::int64_t prompt_tokens, std::int64_t answer_tokens);

  /// A window of a model has ended. Windows are written when the next one is begun.
  void note(const std::string& model, std::int64_t window, policy::Load load);
  /// Writes what was noted.
  void save();

  /// Hears of each window that is noted. One listener.
  void on_noted(std::function<void(const std::string& model, const history::WindowLoad&)> heard);

  /// All that is known, bounded. Some of it may lie ahead of the clock, where that was set back.
  [[nodiscard]] const history::LoadBook& book() const { return book_; }
  /// Takes over what others have measured, and writes it. Of two records of a window the greater
  /// holds (history::greater). Windows of another length are passed over, and so are those that
  /// have not ended by the clock of this machine: who entered them has a clock that is ahead.
  Learnt learn(const history::LoadBook& others);
  /// More is known of these models: recall() them. One listener.
  void on_recall(std::function<void(const std::set<std::string>& models)> recall);
  /// Tells who recalls.
  void tell_learnt(const std::set<std::string>& models) const;

  /// UTC less steady time, now.
  [[nodiscard]] Duration take_clock_offset();
  /// Whether the wall clock was set, by more than a tenth of a window, since that was asked last.
  [[nodiscard]] bool clock_moved() const;

 private:
  history::Traffic& traffic_now(const std::string& model);
  void save_traffic();

  std::unique_ptr<history::HistoryStore> store_{};
  history::LoadBook book_{};
  std::int64_t window_ = -1;  ///< Of `noted_`.
  history::ModelLoads noted_{};
  std::int64_t traffic_window_ = -1;  ///< Of `traffic_`.
  history::ModelTraffic traffic_{};   ///< That is not written yet.
  std::function<void(const std::string&, const history::WindowLoad&)> on_noted_{};
  std::function<void(const std::set<std::string>&)> on_recall_{};
  std::string directory_{};
  Duration window_length_{};
  Duration clock_offset_{};
  std::int64_t kept_ = 0;  ///< Windows in the file at most.
};

}  // namespace heddle::manager
