#include "history/database.h"

#include <cstdio>

#include "base/check.h"

#include <sqlite3.h>

namespace heddle::history {
namespace {

constexpr int kBusyMs = 2000;

Error error_of(sqlite3* database, int code) {
  const bool damaged = (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
  return {damaged ? Code::kCorrupt : Code::kUnavailable,
          database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code)};
}

/// As part of a `file:` address.
std::string escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02x", static_cast<unsigned>(c));
      out += hex;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void Statement::bind(int parameter, std::int64_t value) {
  HEDDLE_CHECK(sqlite3_bind_int64(statement_.get(), parameter, value) == SQLITE_OK);
}

void Statement::bind(int parameter, double value) {
  HEDDLE_CHECK(sqlite3_bind_double(statement_.get(), parameter, value) == SQLITE_OK);
}

void Statement::bind(int parameter, std::string_view value) {
  HEDDLE_CHECK(
      sqlite3_bind_text64(
          statement_.get(), parameter, value.data(), value.size(), SQLITE_TRANSIENT, SQLITE_UTF8) ==
      SQLITE_OK);
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) {
    return true;
  }
  Error error = error_of(sqlite3_db_handle(statement_.get()), code);
  sqlite3_reset(statement_.get());
  if (code == SQLITE_DONE) {
    return false;
  }
  return error;
}

Result<void> Statement::run() {
  const Result<bool> done = step();
  return done ? Result<void>() : Result<void>(done.error());
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::number(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}

std::string Statement::text(int column) const {
  const auto* const text = sqlite3_column_text(statement_.get(), column);
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return text == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(text), static_cast<std::size_t>(bytes));
}

void Database::Close::operator()(sqlite3* database) const {
  sqlite3_close(database);
}

Result<Database> Database::open(const std::string& file, Mode mode) {
  const bool read_only = mode != Mode::kReadWrite;
  const std::string address =
      "file:" + escaped(file) + (mode == Mode::kReadOnly ? "?immutable=1" : "");
  const int flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
                    (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(address.c_str(), &handle, flags, nullptr);
  Database database(handle);
  if (code != SQLITE_OK) {
    return error_of(handle, code);
  }
  sqlite3_busy_timeout(handle, kBusyMs);
  return database;
}

Result<Database> Database::make(const std::string& file,
                                std::int64_t known,
                                const char* statements) {
  const auto wrapped = [&file](const Error& error) {
    return Error{error.code, file + ": " + error.message};
  };
  Result<Database> database = open(file, Mode::kReadWrite);
  if (!database) {
    return wrapped(database.error());
  }
  if (const Result<std::int64_t> version = database->version(known); !version) {
    return wrapped(version.error());
  }
  if (const Result<void> made = database->run(statements); !made) {
    return wrapped(made.error());
  }
  return database;
}

Result<void> Database::run(const char* statements) {
  const int code = sqlite3_exec(database_.get(), statements, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return error_of(database_.get(), code);
  }
  return {};
}

Result<Statement> Database::prepare(std::string_view statement) {
  sqlite3_stmt* prepared = nullptr;
  const int code = sqlite3_prepare_v2(
      database_.get(), statement.data(), static_cast<int>(statement.size()), &prepared, nullptr);
  if (code != SQLITE_OK) {
    return error_of(database_.get(), code);
  }
  return Statement(prepared);
}

Result<std::int64_t> Database::version(std::int64_t known) {
  Result<std::int64_t> version = integer("PRAGMA user_version");
  if (version && *version > known) {
    return Error{Code::kFailedPrecondition,
                 "it is of version " + std::to_string(*version) + "; this heddle knows " +
                     std::to_string(known)};
  }
  return version;
}

Result<std::int64_t> Database::integer(std::string_view statement) {
  Result<Statement> prepared = prepare(statement);
  if (!prepared) {
    return prepared.error();
  }
  const Result<bool> row = prepared->step();
  if (!row) {
    return row.error();
  }
  return *row ? prepared->integer(0) : 0;
}

bool Database::read_only() const {
  return sqlite3_db_readonly(database_.get(), "main") == 1;
}

}  // namespace heddle::history
