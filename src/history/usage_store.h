#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "history/database.h"
#include "spec/key_usage.h"

namespace heddle::history {

/// What keys have used of models, by day, in the file `usage.db` of a directory. Calls wait for the
/// disk. Any thread.
class UsageStore {
 public:
  static constexpr const char* kFile = "usage.db";
  static constexpr std::int64_t kDaysKept = 400;

  /// A directory that is missing is made. kCorrupt for a file that is damaged,
  /// kFailedPrecondition for one of a later version, kUnavailable where it cannot be had.
  static Result<std::unique_ptr<UsageStore>> open(const std::string& directory);

  /// Adds to what is there, in one transaction, and forgets what is older than kDaysKept before the
  /// last of these days.
  Result<void> add(const std::vector<spec::KeyUsage>& used);
  /// Of each day from `from` on, by day, key and model.
  Result<std::vector<spec::KeyUsage>> since(std::int64_t from);

 private:
  explicit UsageStore(Database database) : database_(std::move(database)) {}
  Result<void> add_all(const std::vector<spec::KeyUsage>& used);

  std::mutex mutex_{};
  Database database_;  ///< Guarded by the mutex.
};

}  // namespace heddle::history
