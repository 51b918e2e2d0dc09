#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace heddle::history {

/// A prepared statement. Parameters count from 1, columns from 0.
class Statement {
 public:
  void bind(int parameter, std::int64_t value);
  void bind(int parameter, double value);
  /// `value` is copied.
  void bind(int parameter, std::string_view value);

  /// True: there is a row to look at. False: done, and ready to be bound again. Errors as
  /// Database::run.
  Result<bool> step();
  /// Of a statement that gives no rows.
  Result<void> run();
  /// What `make` reads of each row that is left, in order.
  template <class Make>
  Result<std::vector<std::invoke_result_t<Make, const Statement&>>> rows(Make make) {
    std::vector<std::invoke_result_t<Make, const Statement&>> made;
    for (;;) {
      const Result<bool> row = step();
      if (!row) {
        return row.error();
      }
      if (!*row) {
        return made;
      }
      made.push_back(make(std::as_const(*this)));
    }
  }

  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double number(int column) const;
  [[nodiscard]] std::string text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// An SQLite file. Used by one thread at a time.
class Database {
 public:
  enum class Mode : std::uint8_t {
    kReadWrite,  ///< Created where it is missing.
    kShared,     ///< For reading, beside others who may write it.
    kReadOnly,   ///< As it lies there, without a lock or a file beside it: nobody else writes it.
  };

  /// Does not look into the file yet. kUnavailable when it cannot be opened so.
  static Result<Database> open(const std::string& file, Mode mode);
  /// To read and to write, with what `statements` make where it is missing. Errors name the file;
  /// kFailedPrecondition as version().
  static Result<Database> make(const std::string& file, std::int64_t known, const char* statements);

  /// Runs statements without parameters. kCorrupt: the file is damaged or no database;
  /// kUnavailable: it cannot be read or written now; the message is SQLite's.
  Result<void> run(const char* statements);
  Result<Statement> prepare(std::string_view statement);
  /// The file's `user_version`, 0 of a new one. kFailedPrecondition: it is later than `known`.
  Result<std::int64_t> version(std::int64_t known);
  /// The one integer that the statement gives.
  Result<std::int64_t> integer(std::string_view statement);
  /// Whether the file was opened for reading only, whatever was asked for.
  [[nodiscard]] bool read_only() const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database) : database_(database) {}
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace heddle::history
