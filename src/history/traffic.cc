#include "history/traffic.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/units.h"
#include "history/database.h"
#include "history/history_store.h"

namespace heddle::history {
namespace {

namespace fs = std::filesystem;

/// Sound numbers of a request's tokens are below this.
constexpr double kTokensMost = 1e15;

Error error_at(const std::string& file, Code code, const std::string& what) {
  return {code, file + ": " + what};
}

/// The database of a file, of the version that is known here.
Result<Database> open_known(const std::string& file) {
  std::error_code missing;
  if (!fs::is_regular_file(file, missing)) {
    return error_at(file, Code::kNotFound, "there is no such file");
  }
  std::optional<Error> why;
  for (const Database::Mode mode : {Database::Mode::kShared, Database::Mode::kReadOnly}) {
    Result<Database> database = Database::open(file, mode);
    const Result<std::int64_t> version =
        database ? database->integer("PRAGMA user_version") : database.error();
    if (!version) {
      why = why.value_or(version.error());
      continue;  // Where nothing beside the file can be written, SQLite wants it as it lies there.
    }
    if (*version != HistoryStore::kVersion) {
      return error_at(file,
                      Code::kFailedPrecondition,
                      *version == 0
                          ? "it is no history of heddle"
                          : "it is of version " + std::to_string(*version) +
                                "; this heddle knows " + std::to_string(HistoryStore::kVersion));
    }
    return database;
  }
  return error_at(file,
                  why->code,
                  why->code == Code::kCorrupt ? "it is no history of heddle: " + why->message
                                              : "it cannot be read: " + why->message);
}

bool sound(const Traffic& traffic) {
  const auto within = [](double value) { return value >= 0 && value < kTokensMost * kTokensMost; };
  return traffic.arrivals >= 0 && traffic.finished >= 0 && within(traffic.prompt_tokens) &&
         within(traffic.prompt_squares) && within(traffic.answer_tokens) &&
         within(traffic.answer_squares);
}

Result<void> read_file(const std::string& file, TrafficHistory& history) {
  Result<Database> database = open_known(file);
  if (!database) {
    return database.error();
  }
  const Result<std::int64_t> table =
      database->integer("SELECT count(*) FROM sqlite_master WHERE name = 'traffic'");
  const Result<std::int64_t> length =
      table && *table > 0
          ? database->integer(
                "SELECT length_ns FROM traffic ORDER BY length_ns * start DESC LIMIT 1")
          : table;
  if (!length) {
    return error_at(file, length.error().code, length.error().message);
  }
  if (*length <= 0) {
    return error_at(file,
                    Code::kFailedPrecondition,
                    "it has no requests yet: heddle serve counts them for each "
                    "planner.window, and writes them when the window is over");
  }
  if (history.window != Duration{} && history.window != Duration(*length)) {
    return error_at(file,
                    Code::kFailedPrecondition,
                    "its windows are of " + format_duration(Duration(*length)) +
                        ", those of the file before of " + format_duration(history.window));
  }
  history.window = Duration(*length);
  Result<Statement> select = database->prepare(
      "SELECT start, model, arrivals, finished, prompt_tokens, prompt_squares, answer_tokens, "
      "answer_squares FROM traffic WHERE length_ns = ? ORDER BY start");
  if (!select) {
    return error_at(file, select.error().code, select.error().message);
  }
  select->bind(1, *length);
  for (;;) {
    const Result<bool> row = select->step();
    if (!row) {
      return error_at(file, row.error().code, row.error().message);
    }
    if (!*row) {
      return {};
    }
    const Traffic traffic{.arrivals = select->integer(2),
                          .finished = select->integer(3),
                          .prompt_tokens = select->number(4),
                          .prompt_squares = select->number(5),
                          .answer_tokens = select->number(6),
                          .answer_squares = select->number(7)};
    if (!sound(traffic) || select->integer(0) < 0) {
      return error_at(file, Code::kCorrupt, "it has numbers of requests that cannot be");
    }
    history.windows[select->integer(0)][select->text(1)].add(traffic);
  }
}

}  // namespace

void Traffic::ended(std::int64_t prompt, std::int64_t answer) {
  const auto in = static_cast<double>(prompt);
  const auto out = static_cast<double>(answer);
  ++finished;
  prompt_tokens += in;
  prompt_squares += in * in;
  answer_tokens += out;
  answer_squares += out * out;
}

void Traffic::add(const Traffic& other) {
  arrivals += other.arrivals;
  finished += other.finished;
  prompt_tokens += other.prompt_tokens;
  prompt_squares += other.prompt_squares;
  answer_tokens += other.answer_tokens;
  answer_squares += other.answer_squares;
}

Result<TrafficHistory> read_traffic(const std::vector<std::string>& places) {
  HEDDLE_CHECK(!places.empty());
  TrafficHistory history;
  for (const std::string& place : places) {
    std::error_code missing;
    const std::string file =
        fs::is_directory(place, missing) ? (fs::path(place) / HistoryStore::kFile).string() : place;
    if (const Result<void> read = read_file(file, history); !read) {
      return read.error();
    }
  }
  return history;
}

}  // namespace heddle::history
