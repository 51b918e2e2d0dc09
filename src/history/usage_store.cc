#include "history/usage_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace heddle::history {

namespace {

constexpr std::int64_t kUsageVersion = 1;

constexpr const char* kCreateUsage = R"(
  PRAGMA journal_mode = WAL;
  BEGIN IMMEDIATE;
  CREATE TABLE IF NOT EXISTS usage (
    day INTEGER NOT NULL,        -- Since 1970, UTC.
    key TEXT NOT NULL,           -- What logs call it.
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, key, model)
  ) WITHOUT ROWID;
  PRAGMA user_version = 1;
  COMMIT;
)";

constexpr const char* kAddUsage = R"(
  INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
  ON CONFLICT (day, key, model) DO UPDATE SET
    requests = requests + ?4, prompt_tokens = prompt_tokens + ?5,
    cached_tokens = cached_tokens + ?6, completion_tokens = completion_tokens + ?7
)";

}  // namespace

Result<std::unique_ptr<UsageStore>> UsageStore::open(const std::string& directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  Result<Database> database = Database::make(directory + "/" + kFile, kUsageVersion, kCreateUsage);
  if (!database) {
    return database.error();
  }
  return std::unique_ptr<UsageStore>(new UsageStore(std::move(*database)));
}

Result<void> UsageStore::add(const std::vector<spec::KeyUsage>& used) {
  if (used.empty()) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  if (Result<void> begun = database_.run("BEGIN IMMEDIATE"); !begun) {
    return begun;
  }
  Result<void> added = add_all(used);
  const Result<void> ended = database_.run(added ? "COMMIT" : "ROLLBACK");
  return added ? ended : added;
}

Result<void> UsageStore::add_all(const std::vector<spec::KeyUsage>& used) {
  Result<Statement> add = database_.prepare(kAddUsage);
  if (!add) {
    return add.error();
  }
  std::int64_t last = 0;
  for (const spec::KeyUsage& one : used) {
    last = std::max(last, one.day);
    add->bind(1, one.day);
    add->bind(2, std::string_view(one.key));
    add->bind(3, std::string_view(one.model));
    add->bind(4, one.requests);
    add->bind(5, one.prompt_tokens);
    add->bind(6, one.cached_tokens);
    add->bind(7, one.completion_tokens);
    if (Result<void> done = add->run(); !done) {
      return done;
    }
  }
  Result<Statement> forget = database_.prepare("DELETE FROM usage WHERE day < ?1");
  if (!forget) {
    return forget.error();
  }
  forget->bind(1, last - kDaysKept);
  return forget->run();
}

Result<std::vector<spec::KeyUsage>> UsageStore::since(std::int64_t from) {
  const std::lock_guard lock(mutex_);
  Result<Statement> rows = database_.prepare(
      "SELECT day, key, model, requests, prompt_tokens, cached_tokens, completion_tokens "
      "FROM usage WHERE day >= ?1 ORDER BY day, key, model");
  if (!rows) {
    return rows.error();
  }
  rows->bind(1, from);
  return rows->rows([](const Statement& row) {
    return spec::KeyUsage{.day = row.integer(0),
                          .key = row.text(1),
                          .model = row.text(2),
                          .requests = row.integer(3),
                          .prompt_tokens = row.integer(4),
                          .cached_tokens = row.integer(5),
                          .completion_tokens = row.integer(6)};
  });
}

}  // namespace heddle::history
