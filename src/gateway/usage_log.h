#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace heddle::gateway {

/// What a key has used of a model on a day.
struct UsageRow {
  std::int64_t day = 0;  ///< Days since 1970, UTC.
  std::string key{};     ///< What logs call the key; empty where none is asked for.
  std::string model{};
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< Of the prompts, that were not computed again.
  std::int64_t completion_tokens = 0;
  friend bool operator==(const UsageRow&, const UsageRow&) = default;
};

/// What keys have used of models, by day. Bounded: beyond so many rows the oldest day goes. Loop
/// thread.
class UsageLog {
 public:
  static constexpr std::size_t kRowsMost = 65'536;

  /// Adds what was used, to be saved later.
  void add(const UsageRow& used);
  /// Adds what was saved by an earlier process.
  void restore(const std::vector<UsageRow>& saved);

  /// Each day from `from` on, in order.
  [[nodiscard]] std::vector<UsageRow> since(std::int64_t from) const;
  /// What was added since the last call, summed.
  [[nodiscard]] std::vector<UsageRow> take_unsaved();

 private:
  using Place = std::tuple<std::int64_t, std::string, std::string>;  ///< Day, key, model.
  using Rows = std::map<Place, UsageRow>;
  static void add_to(Rows& rows, const UsageRow& used);

  Rows rows_{};
  Rows unsaved_{};
};

/// Rows of a key and model made one each, of the first day among them.
[[nodiscard]] std::vector<UsageRow> summed(const std::vector<UsageRow>& rows);

}  // namespace heddle::gateway
