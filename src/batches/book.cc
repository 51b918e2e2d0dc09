#include "batches/book.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "batches/line_file.h"

namespace heddle::batches {

namespace fs = std::filesystem;
using history::Database;
using history::Statement;

namespace {

constexpr std::int64_t kBookVersion = 1;

constexpr const char* kCreateBook = R"(
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = NORMAL;
  BEGIN IMMEDIATE;
  CREATE TABLE IF NOT EXISTS salt (low INTEGER NOT NULL, high INTEGER NOT NULL);
  INSERT INTO salt SELECT random(), random() WHERE NOT EXISTS (SELECT 1 FROM salt);
  CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created INTEGER NOT NULL,    -- Seconds since 1970, as all times.
    expires INTEGER NOT NULL,    -- 0: never.
    number INTEGER NOT NULL      -- In the order in which they came.
  ) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS batches (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    input TEXT NOT NULL,
    output TEXT NOT NULL,
    errors TEXT NOT NULL,
    state INTEGER NOT NULL,
    at0 INTEGER NOT NULL, at1 INTEGER NOT NULL, at2 INTEGER NOT NULL, at3 INTEGER NOT NULL,
    at4 INTEGER NOT NULL, at5 INTEGER NOT NULL, at6 INTEGER NOT NULL, at7 INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    total INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    has_output INTEGER NOT NULL,
    has_errors INTEGER NOT NULL,
    over INTEGER NOT NULL,
    number INTEGER NOT NULL
  ) WITHOUT ROWID;
  PRAGMA user_version = 1;
  COMMIT;
)";

constexpr const char* kPutBatch = R"(
  INSERT INTO batches VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
     ?21, ?22, ?23, ?24, ?25, (SELECT COALESCE(MAX(number), 0) + 1 FROM batches))
  ON CONFLICT (id) DO UPDATE SET
    state = ?7, at0 = ?8, at1 = ?9, at2 = ?10, at3 = ?11, at4 = ?12, at5 = ?13, at6 = ?14,
    at7 = ?15, expires = ?16, total = ?17, completed = ?18, failed = ?19, metadata = ?20,
    code = ?21, message = ?22, has_output = ?23, has_errors = ?24, over = ?25
  WHERE over = 0 AND state <= ?7
)";

constexpr int kAt = 7;  ///< Column of the first time, of kStates.

Error full(const std::string& why) {
  return {.code = Code::kResourceExhausted, .message = why};
}

FileRecord file_of(const Statement& row) {
  return {.id = row.text(0),
          .owner = row.text(1),
          .name = row.text(2),
          .purpose = row.text(3),
          .bytes = static_cast<std::uint64_t>(row.integer(4)),
          .created_s = row.integer(5),
          .expires_s = row.integer(6)};
}

BatchRecord batch_of(const Statement& row) {
  constexpr int kAfter = kAt + static_cast<int>(kStates);
  BatchRecord batch{.id = row.text(0),
                    .owner = row.text(1),
                    .endpoint = row.text(2),
                    .input = row.text(3),
                    .output = row.text(4),
                    .errors = row.text(5),
                    .state = static_cast<State>(row.integer(6)),
                    .expires_s = row.integer(kAfter),
                    .counts = {.total = row.integer(kAfter + 1),
                               .completed = row.integer(kAfter + 2),
                               .failed = row.integer(kAfter + 3)},
                    .metadata = row.text(kAfter + 4),
                    .code = row.text(kAfter + 5),
                    .message = row.text(kAfter + 6),
                    .has_output = row.integer(kAfter + 7) != 0,
                    .has_errors = row.integer(kAfter + 8) != 0};
  for (std::size_t i = 0; i < kStates; ++i) {
    batch.at.at(i) = row.integer(kAt + static_cast<int>(i));
  }
  return batch;
}

void bind_batch(Statement& statement, const BatchRecord& batch) {
  int at = 0;
  for (const std::string* text :
       {&batch.id, &batch.owner, &batch.endpoint, &batch.input, &batch.output, &batch.errors}) {
    statement.bind(++at, std::string_view(*text));
  }
  statement.bind(++at, std::int64_t{static_cast<std::uint8_t>(batch.state)});
  for (const std::int64_t seconds : batch.at) {
    statement.bind(++at, seconds);
  }
  for (const std::int64_t number :
       {batch.expires_s, batch.counts.total, batch.counts.completed, batch.counts.failed}) {
    statement.bind(++at, number);
  }
  for (const std::string* text : {&batch.metadata, &batch.code, &batch.message}) {
    statement.bind(++at, std::string_view(*text));
  }
  for (const bool flag : {batch.has_output, batch.has_errors, is_over(batch.state)}) {
    statement.bind(++at, std::int64_t{flag ? 1 : 0});
  }
}

std::uint64_t size_of(const std::string& file) {
  std::error_code failure;
  const std::uintmax_t bytes = fs::file_size(file, failure);
  return failure ? 0 : bytes;
}

Error no_such(const std::string& what, const std::string& id) {
  return {.code = Code::kNotFound, .message = "there is no " + what + " \"" + id + "\""};
}

}  // namespace

Book::Book(std::string folder, Database database, Limits limits)
    : folder_(std::move(folder)),
      limits_(limits),
      bytes_max_(limits.bytes),
      database_(std::move(database)) {}

Result<std::unique_ptr<Book>> Book::open(const std::string& folder, Limits limits) {
  std::error_code failure;
  fs::create_directories(folder + "/files", failure);
  const std::string file = folder + "/book.db";
  const auto wrapped = [&file](const Error& error) {
    return Error{error.code, file + ": " + error.message};
  };
  if (!failure) {  // What clients send is nobody else's.
    fs::permissions(folder, fs::perms::owner_all, failure);
  }
  if (failure) {
    return Error{.code = Code::kUnavailable, .message = folder + ": " + failure.message()};
  }
  Result<Database> database = Database::make(file, kBookVersion, kCreateBook);
  if (!database) {
    return database.error();
  }
  std::unique_ptr<Book> book(new Book(folder, std::move(*database), limits));
  if (const Result<void> known = book->learn_salt(); !known) {
    return wrapped(known.error());
  }
  if (const Result<void> tidy = book->tidy_up(); !tidy) {
    return wrapped(tidy.error());
  }
  return book;
}

Result<void> Book::learn_salt() {
  for (std::size_t i = 0; i < salt_.size(); ++i) {
    const Result<std::int64_t> half =
        database_.integer(i == 0 ? "SELECT low FROM salt" : "SELECT high FROM salt");
    if (!half) {
      return half.error();
    }
    salt_.at(i) = static_cast<std::uint64_t>(*half);
  }
  return {};
}

/// Whether a file has a record, or belongs to a batch that is not over.
Result<bool> Book::is_known(const std::string& file) {
  const Result<std::int64_t> known = count(
      "SELECT (SELECT COUNT(*) FROM files WHERE id = ?1) + "
      "(SELECT COUNT(*) FROM batches WHERE over = 0 AND (output = ?1 OR errors = ?1))",
      file);
  return known ? Result<bool>(*known > 0) : Result<bool>(known.error());
}

Result<bool> Book::is_read(const std::string& file) {
  const Result<std::int64_t> reads =
      count("SELECT COUNT(*) FROM batches WHERE over = 0 AND input = ?1", file);
  return reads ? Result<bool>(*reads > 0) : Result<bool>(reads.error());
}

/// Counts the bytes of files that are known, and removes the others, which a process left that was
/// killed.
Result<void> Book::tidy_up() {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/files", failure)) {
    const std::string file = entry.path().filename().string();
    const Result<bool> known = is_known(file);
    if (!known) {
      return known.error();
    }
    if (*known) {
      bytes_ += size_of(entry.path().string());
    } else {
      fs::remove(entry.path(), failure);
    }
  }
  return failure ? Result<void>(Error{.code = Code::kUnavailable, .message = failure.message()})
                 : Result<void>();
}

std::string Book::path_of(const std::string& file) const {
  return folder_ + "/files/" + file;
}

void Book::erase_bytes(const std::string& file) {
  const std::string path = path_of(file);
  bytes_ -= size_of(path);
  std::error_code ignored;
  fs::remove(path, ignored);
}

Result<std::int64_t> Book::count(const char* statement, const std::string& owner) {
  Result<Statement> rows = database_.prepare(statement);
  if (!rows) {
    return rows.error();
  }
  rows->bind(1, std::string_view(owner));
  const Result<bool> row = rows->step();
  if (!row) {
    return row.error();
  }
  return *row ? rows->integer(0) : 0;
}

// --- Files ---

Result<void> Book::add_file(const FileRecord& file, std::string_view content) {
  const std::lock_guard lock(mutex_);
  const Result<std::int64_t> has = count("SELECT COUNT(*) FROM files WHERE owner = ?1", file.owner);
  if (!has) {
    return has.error();
  }
  if (*has >= static_cast<std::int64_t>(limits_.owner_files)) {
    return full("there are " + std::to_string(*has) + " files already; delete some");
  }
  const std::uint64_t most = bytes_max_;
  if (bytes_ + content.size() > most) {
    return full("files have " + std::to_string(bytes_) + " of " + std::to_string(most) +
                " bytes (batches.disk), and this one has " + std::to_string(content.size()) +
                "; delete some");
  }
  Result<void> written = append_to(path_of(file.id), content);
  bytes_ += size_of(path_of(file.id));
  if (written) {
    written = insert_file(file);
  }
  if (!written) {
    erase_bytes(file.id);
  }
  return written;
}

Result<void> Book::insert_file(const FileRecord& file) {
  Result<Statement> insert = database_.prepare(
      "INSERT INTO files VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, "
      "(SELECT COALESCE(MAX(number), 0) + 1 FROM files))");
  if (!insert) {
    return insert.error();
  }
  insert->bind(1, std::string_view(file.id));
  insert->bind(2, std::string_view(file.owner));
  insert->bind(3, std::string_view(file.name));
  insert->bind(4, std::string_view(file.purpose));
  insert->bind(5, static_cast<std::int64_t>(file.bytes));
  insert->bind(6, file.created_s);
  insert->bind(7, file.expires_s);
  return insert->run();
}

Result<FileRecord> Book::file(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  Result<Statement> rows = database_.prepare("SELECT * FROM files WHERE id = ?1 AND owner = ?2");
  if (!rows) {
    return rows.error();
  }
  rows->bind(1, std::string_view(id));
  rows->bind(2, std::string_view(owner));
  const Result<bool> row = rows->step();
  if (!row) {
    return row.error();
  }
  return *row ? Result<FileRecord>(file_of(*rows)) : Result<FileRecord>(no_such("file", id));
}

Result<std::vector<FileRecord>> Book::files(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  Result<Statement> rows =
      database_.prepare("SELECT * FROM files WHERE owner = ?1 ORDER BY number");
  if (!rows) {
    return rows.error();
  }
  rows->bind(1, std::string_view(owner));
  return rows->rows(file_of);
}

Result<void> Book::remove_file(const std::string& owner, const std::string& id) {
  if (const Result<FileRecord> known = file(owner, id); !known) {
    return known.error();
  }
  const std::lock_guard lock(mutex_);
  const Result<bool> read = is_read(id);
  if (!read) {
    return read.error();
  }
  if (*read) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = "file \"" + id + "\" is read by a batch; cancel that first"};
  }
  Result<Statement> remove = database_.prepare("DELETE FROM files WHERE id = ?1");
  if (!remove) {
    return remove.error();
  }
  remove->bind(1, std::string_view(id));
  const Result<void> removed = remove->run();
  if (removed) {
    erase_bytes(id);
  }
  return removed;
}

Result<void> Book::remove_expired(std::int64_t now_s) {
  std::vector<FileRecord> expired;
  {
    const std::lock_guard lock(mutex_);
    Result<Statement> rows = database_.prepare(
        "SELECT * FROM files WHERE expires > 0 AND expires <= ?1 AND NOT EXISTS "
        "(SELECT 1 FROM batches WHERE over = 0 AND input = files.id)");
    if (!rows) {
      return rows.error();
    }
    rows->bind(1, now_s);
    Result<std::vector<FileRecord>> read = rows->rows(file_of);
    if (!read) {
      return read.error();
    }
    expired = std::move(*read);
  }
  for (const FileRecord& file : expired) {
    if (Result<void> removed = remove_file(file.owner, file.id); !removed) {
      return removed;
    }
  }
  return {};
}

// --- Batches ---

Result<void> Book::add_batch(const BatchRecord& batch) {
  const std::lock_guard lock(mutex_);
  const Result<std::int64_t> own =
      count("SELECT COUNT(*) FROM batches WHERE over = 0 AND owner = ?1", batch.owner);
  const Result<std::int64_t> all = database_.integer("SELECT COUNT(*) FROM batches WHERE over = 0");
  if (!own || !all) {
    return own ? all.error() : own.error();
  }
  if (*own >= static_cast<std::int64_t>(limits_.owner_batches)) {
    return full(std::to_string(*own) + " batches of this key are under way, which is the most");
  }
  if (*all >= static_cast<std::int64_t>(limits_.batches)) {
    return full(std::to_string(*all) + " batches are under way, which is the most");
  }
  return keep_locked(batch);
}

Result<void> Book::keep(const BatchRecord& batch) {
  const std::lock_guard lock(mutex_);
  return keep_locked(batch);
}

Result<void> Book::keep_locked(const BatchRecord& batch) {
  Result<Statement> put = database_.prepare(kPutBatch);
  if (!put) {
    return put.error();
  }
  bind_batch(*put, batch);
  return put->run();
}

Result<std::vector<BatchRecord>> Book::select(const char* where,
                                              std::initializer_list<std::string_view> values) {
  Result<Statement> rows =
      database_.prepare("SELECT * FROM batches WHERE " + std::string(where) + " ORDER BY number");
  if (!rows) {
    return rows.error();
  }
  int at = 0;
  for (const std::string_view value : values) {
    rows->bind(++at, value);
  }
  return rows->rows(batch_of);
}

Result<BatchRecord> Book::batch(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const Result<std::vector<BatchRecord>> found = select("owner = ?1 AND id = ?2", {owner, id});
  if (!found) {
    return found.error();
  }
  return found->empty() ? Result<BatchRecord>(no_such("batch", id))
                        : Result<BatchRecord>(found->front());
}

Result<std::vector<BatchRecord>> Book::batches(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  return select("owner = ?1", {owner});
}

Result<std::vector<BatchRecord>> Book::unfinished() {
  const std::lock_guard lock(mutex_);
  return select("over = 0", {});
}

Result<void> Book::write(const BatchRecord& batch, bool failed, std::string_view lines) {
  const std::lock_guard lock(mutex_);
  Result<void> written = append_to(path_of(failed ? batch.errors : batch.output), lines);
  bytes_ += written ? lines.size() : 0;
  return written;
}

/// Gives a batch's file a record, where there is anything in it.
Result<bool> Book::adopt(const BatchRecord& batch, const std::string& file, std::int64_t now_s) {
  const std::uint64_t bytes = size_of(path_of(file));
  if (bytes == 0) {
    return false;
  }
  const std::string what = file == batch.errors ? "error" : "output";
  const Result<void> inserted = insert_file({.id = file,
                                             .owner = batch.owner,
                                             .name = batch.id + "_" + what + ".jsonl",
                                             .purpose = "batch_output",
                                             .bytes = bytes,
                                             .created_s = now_s});
  return inserted ? Result<bool>(true) : Result<bool>(inserted.error());
}

Result<void> Book::finish(BatchRecord& batch, State state, std::int64_t now_s) {
  const std::lock_guard lock(mutex_);
  if (Result<void> begun = database_.run("BEGIN IMMEDIATE"); !begun) {
    return begun;
  }
  const Result<bool> output = adopt(batch, batch.output, now_s);
  const Result<bool> errors = adopt(batch, batch.errors, now_s);
  Result<void> kept = !output ? Result<void>(output.error()) : Result<void>();
  kept = kept && !errors ? Result<void>(errors.error()) : kept;
  BatchRecord next = batch;
  if (kept) {
    next.has_output = *output;
    next.has_errors = *errors;
    next.enter(state, now_s);
    kept = keep_locked(next);
  }
  if (kept) {
    kept = forget_past(batch.owner);
  }
  const Result<void> ended = database_.run(kept ? "COMMIT" : "ROLLBACK");
  if (kept && ended) {
    batch = next;
  }
  return kept ? ended : kept;
}

/// Files stay until they are deleted, whatever is known of their batches.
Result<void> Book::forget_past(const std::string& owner) {
  Result<Statement> forget = database_.prepare(
      "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE over = 1 AND owner = ?1 "
      "ORDER BY number DESC LIMIT -1 OFFSET ?2)");
  if (!forget) {
    return forget.error();
  }
  forget->bind(1, std::string_view(owner));
  forget->bind(2, static_cast<std::int64_t>(limits_.owner_past));
  return forget->run();
}

}  // namespace heddle::batches
