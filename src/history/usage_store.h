#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "history/database.h"

namespace heddle::history {

/// What a key has used of a model on a day.
struct Usage {
  std::int64_t day = 0;  ///< Days since 1970, UTC.
  std::string key{};
  std::string model{};
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  friend bool operator==(const Usage&, const Usage&) = default;
};

/// What keys have used of models, by day, in the file `usage.db` of a directory. Calls wait for the
/// disk. Any thread.
class UsageStore {
 public:
  static constexpr const char* kFile = "usage.db";
  static constexpr std::int64_t kDaysKept = 400;

  /// A directory that is missing is made. kCorrupt for a file that is damaged or of a later
  /// version; kUnavailable where it cannot be had.
  static Result<std::unique_ptr<UsageStore>> open(const std::string& directory);

  /// Adds to what is there, in one transaction, and forgets what is older than kDaysKept before the
  /// last of these days.
  Result<void> add(const std::vector<Usage>& used);
  /// Of each day from `from` on, by day, key and model.
  Result<std::vector<Usage>> since(std::int64_t from);

 private:
  explicit UsageStore(Database database) : database_(std::move(database)) {}
  Result<void> add_all(const std::vector<Usage>& used);

  std::mutex mutex_{};
  Database database_;  ///< Guarded by the mutex.
};

}  // namespace heddle::history
