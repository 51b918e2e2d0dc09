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
  const std::string file = directory + "/" + kFile;
  const auto wrapped = [&file](const Error& error) {
    return Error{error.code, file + ": " + error.message};
  };
  Result<Database> database = Database::open(file, Database::Mode::kReadWrite);
  if (!database) {
    return wrapped(database.error());
  }
  if (const Result<std::int64_t> version = database->version(kUsageVersion); !version) {
    return wrapped(version.error());
  }
  if (const Result<void> made = database->run(kCreateUsage); !made) {
    return wrapped(made.error());
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
    if (const Result<bool> done = add->step(); !done) {
      return done.error();
    }
  }
  Result<Statement> forget = database_.prepare("DELETE FROM usage WHERE day < ?1");
  if (!forget) {
    return forget.error();
  }
  forget->bind(1, last - kDaysKept);
  const Result<bool> done = forget->step();
  return done ? Result<void>() : Result<void>(done.error());
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
  std::vector<spec::KeyUsage> found;
  for (;;) {
    const Result<bool> row = rows->step();
    if (!row) {
      return row.error();
    }
    if (!*row) {
      return found;
    }
    found.push_back({.day = rows->integer(0),
                     .key = rows->text(1),
                     .model = rows->text(2),
                     .requests = rows->integer(3),
                     .prompt_tokens = rows->integer(4),
                     .cached_tokens = rows->integer(5),
                     .completion_tokens = rows->integer(6)});
  }
}

}  // namespace heddle::history
