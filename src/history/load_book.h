#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"
#include "policy/load_history.h"

namespace heddle::history {

/// A window that has ended, by its number (policy::Calendar, whose zero is 1970 UTC).
struct WindowLoad {
  std::int64_t window = 0;
  policy::Load load{};
  friend bool operator==(const WindowLoad&, const WindowLoad&) = default;
};

/// The loads of models in past windows of one length, in memory. Bounded: beyond a bound the oldest
/// windows go, of all models alike. What cannot be, such as a load below 0, is never entered. So
/// whoever fills it need not be trusted.
class LoadBook {
 public:
  static constexpr std::size_t kNameMost = 1024;        ///< Bytes of a model's name.
  static constexpr std::size_t kModelsMost = 4096;      ///< Beyond it the longest silent one goes.
  static constexpr std::int64_t kWindowsMost = 16'384;  ///< Numbers of windows.
  static constexpr std::size_t kLoadsMost = 1U << 20U;  ///< Of all models; 24 bytes each.
  static constexpr double kLoadMost = 1e9;              ///< Requests at once in the system.
  static constexpr std::int64_t kNumberMost = 1LL << 53U;  ///< Of a window.

  /// A model's windows, ascending; at least one.
  struct Model {
    std::deque<WindowLoad> windows{};
    std::uint64_t hash = 0;  ///< Of its name.
  };

  /// From now on windows have this length, > 0, and the latest `keep` numbers are kept, of which
  /// there are 1 to kWindowsMost. What was of another length is forgotten.
  void begin(Duration length, std::int64_t keep);
  /// 0 before begin().
  [[nodiscard]] Duration length() const { return length_; }
  [[nodiscard]] std::int64_t keep() const { return keep_; }

  /// Enters a load in place of what was known of this window. Whether something has changed.
  bool put(const std::string& model, std::int64_t window, policy::Load load);
  /// Enters it unless a load is known that is no less (greater()). Whether something has changed.
  bool merge(const std::string& model, std::int64_t window, policy::Load load);

  [[nodiscard]] const std::map<std::string, Model>& models() const { return models_; }
  [[nodiscard]] std::optional<policy::Load> at(const std::string& model, std::int64_t window) const;
  /// Windows of all models.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The same for two books that hold the same, however they came to it.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  using Models = std::map<std::string, Model>;

  Model* find_or_add(const std::string& model);
  void forget_oldest();
  void forget(Models::iterator model);
  void count(const Model& model, const WindowLoad& window);
  void uncount(const Model& model, const WindowLoad& window);

  Duration length_{};
  std::int64_t keep_ = kWindowsMost;
  Models models_{};
  std::map<std::int64_t, std::size_t> numbers_{};  ///< How many models have a window.
  std::size_t size_ = 0;
  std::uint64_t digest_ = 0;
};

/// Of two records of one window the greater holds, by the mean and then by the peak: who has the
/// lesser saw a part of the requests only. In whatever order records meet, the same comes of it.
[[nodiscard]] bool greater(const policy::Load& one, const policy::Load& other);

}  // namespace heddle::history
