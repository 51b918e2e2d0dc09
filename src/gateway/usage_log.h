#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "spec/key_usage.h"

namespace heddle::gateway {

/// What keys have used of models, by day. Bounded: beyond so many rows the oldest day goes. Loop
/// thread.
class UsageLog {
 public:
  static constexpr std::size_t kRowsMost = 65'536;

  /// Adds what was used, to be saved later.
  void add(const spec::KeyUsage& used);
  /// Adds what was saved by an earlier process.
  void restore(const std::vector<spec::KeyUsage>& saved);

  /// Each day from `from` on, in order.
  [[nodiscard]] std::vector<spec::KeyUsage> since(std::int64_t from) const;
  /// What was added since the last call, summed.
  [[nodiscard]] std::vector<spec::KeyUsage> take_unsaved();

 private:
  using Place = std::tuple<std::int64_t, std::string, std::string>;  ///< Day, key, model.
  using Rows = std::map<Place, spec::KeyUsage>;
  static void add_to(Rows& rows, const spec::KeyUsage& used);

  Rows rows_{};
  Rows unsaved_{};
};

/// Rows of a key and model made one each, of the first day among them.
[[nodiscard]] std::vector<spec::KeyUsage> summed(const std::vector<spec::KeyUsage>& rows);

}  // namespace heddle::gateway
