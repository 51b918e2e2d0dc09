#include "history/history_store.h"

#include <cmath>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "history/database.h"

namespace heddle::history {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSchemaVersion = HistoryStore::kVersion;

constexpr const char* kCreate = R"(
  BEGIN IMMEDIATE;
  CREATE TABLE load (
    length_ns INTEGER NOT NULL,
    start INTEGER NOT NULL,      -- Number of the window: 1970 UTC has 0.
    model TEXT NOT NULL,
    mean REAL NOT NULL,
    peak REAL NOT NULL,
    PRIMARY KEY (length_ns, start, model)
  ) WITHOUT ROWID;
  PRAGMA user_version = 1;
  COMMIT;)";

/// Beside the loads. Versions of heddle that do not know it pass over it.
constexpr const char* kCreateTraffic = R"(
  CREATE TABLE IF NOT EXISTS traffic (
    length_ns INTEGER NOT NULL,
    start INTEGER NOT NULL,
    model TEXT NOT NULL,
    arrivals INTEGER NOT NULL,
    finished INTEGER NOT NULL,
    prompt_tokens REAL NOT NULL,
    prompt_squares REAL NOT NULL,
    answer_tokens REAL NOT NULL,
    answer_squares REAL NOT NULL,
    PRIMARY KEY (length_ns, start, model)
  ) WITHOUT ROWID;)";

constexpr const char* kSelect =
    "SELECT model, start, mean, peak FROM load WHERE length_ns = ? AND start < ? ORDER BY start";

/// Opens the file for reading and writing, and makes it what it should be. kFailedPrecondition: it
/// is of a later version.
Result<Database> open_for_writing(const std::string& file) {
  Result<Database> database = Database::open(file, Database::Mode::kReadWrite);
  if (!database) {
    return database.error();
  }
  const Result<std::int64_t> version = database->version(kSchemaVersion);
  if (!version) {
    return version.error();
  }
  if (database->read_only()) {
    return Error{Code::kUnavailable, "it is read-only"};
  }
  const Result<std::int64_t> damages =
      database->integer("SELECT count(*) FROM pragma_quick_check WHERE quick_check <> 'ok'");
  if (!damages) {
    return damages.error();
  }
  if (*damages > 0) {
    return Error{Code::kCorrupt, "its pages contradict each other"};
  }
  if (*version > 0) {
    if (const auto table = database->prepare(kSelect); !table) {
      return Error{Code::kCorrupt, table.error().message};  // Sound, but not what it should be.
    }
  }
  // A crash of the machine may cost the last windows, never the file.
  Result<void> ready = database->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
  if (ready && *version == 0) {
    ready = database->run(kCreate);
  }
  if (ready) {
    ready = database->run(kCreateTraffic);
  }
  if (ready) {
    ready = database->run("BEGIN IMMEDIATE; ROLLBACK;");  // Whether it can be written at all.
  }
  if (!ready) {
    return ready.error();
  }
  return database;
}

Result<Database> open_for_reading(const std::string& file) {
  Result<Database> database = Database::open(file, Database::Mode::kReadOnly);
  if (!database) {
    return database.error();
  }
  const Result<std::int64_t> version = database->integer("PRAGMA user_version");
  if (!version) {
    return version.error();
  }
  if (*version != kSchemaVersion) {
    return Error{Code::kFailedPrecondition, "it is of version " + std::to_string(*version)};
  }
  return database;
}

/// Renames the file and forgets what SQLite keeps beside it. The new name, empty if that failed.
std::string set_aside(const std::string& file) {
  const std::string aside = file + ".corrupt-" + std::to_string(std::time(nullptr));
  std::error_code failed;
  fs::rename(file, aside, failed);
  if (failed) {
    return {};
  }
  for (const char* beside : {"-wal", "-shm"}) {
    fs::remove(file + beside, failed);
  }
  return aside;
}

}  // namespace

class HistoryStore::Impl {
 public:
  Impl(std::string file, Duration window) : file_(std::move(file)), window_(window) {
    HEDDLE_CHECK(window > Duration{});
    std::error_code failed;
    fs::create_directories(fs::path(file_).parent_path(), failed);  // What follows says if it did.
    open();
    if (access_ == Access::kReadWrite) {
      begin_writing();
    }
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Access access() const { return access_; }

  [[nodiscard]] PastLoads read_all(std::int64_t before) {
    flush();
    PastLoads all;
    const std::scoped_lock lock(database_mutex_);
    if (!database_) {
      return all;
    }
    if (const Result<void> read = read_into(all, before); !read) {
      warn("its rest cannot be read", read.error());
    }
    return all;
  }

  void record(std::int64_t window, ModelLoads loads) {
    PastLoads entries;
    for (auto& [model, load] : loads) {
      entries[std::move(model)].push_back({.window = window, .load = load});
    }
    enter(std::move(entries));
  }

  void enter(PastLoads loads) {
    enqueue([this, loads = std::move(loads)] { return write_loads(loads); });
  }

  void count(std::int64_t window, ModelTraffic traffic) {
    enqueue([this, window, traffic = std::move(traffic)] {
      return in_transaction([&] { return add(window, traffic); });
    });
  }

  void prune(std::int64_t windows) {
    HEDDLE_CHECK(windows > 0);
    enqueue([this, windows] { return forget_all_but(windows); });
  }

  void flush() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !writing_; });
  }

 private:
  using Write = std::function<Result<void>()>;

  void begin_writing() {
    Result<Thread> writer = Thread::start({.name = "history"}, [this] { write_all(); });
    if (writer) {
      writer_ = std::move(*writer);
      return;
    }
    access_ = Access::kReadOnly;
    warn("it is read but not written", writer.error());
  }

  void open() {
    std::error_code missing;
    const bool emptied = fs::file_size(file_, missing) == 0;
    Result<Database> database = open_for_writing(file_);
    if (database && emptied) {
      warn("it is begun anew", {Code::kCorrupt, "it had no bytes"});
    }
    if (!database && database.error().code == Code::kCorrupt) {
      database = begin_anew(database.error());
    }
    if (database) {
      database_ = std::move(*database);
      access_ = Access::kReadWrite;
      return;
    }
    Result<Database> readable = database.error().code == Code::kFailedPrecondition
                                    ? Result<Database>(database.error())
                                    : open_for_reading(file_);
    if (readable) {
      database_ = std::move(*readable);
      access_ = Access::kReadOnly;
      warn("it is read but not written", database.error());
    } else {
      warn("it is not used", database.error());
    }
  }

  Result<Database> begin_anew(const Error& why) {
    const std::string aside = set_aside(file_);
    if (aside.empty()) {
      return why;
    }
    warn("it was renamed to " + aside + " and is begun anew", why);
    return open_for_writing(file_);
  }

  void warn(const std::string& consequence, const Error& why) const {
    log::warning("load history: " + consequence, {{"file", file_}, {"error", why.message}});
  }

  void enqueue(Write write) {
    if (access_ != Access::kReadWrite) {
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      if (waiting_.size() < kMostWaiting) {
        waiting_.push_back(std::move(write));
      } else if (!std::exchange(dropping_, true)) {
        log::warning("load history: the disk is too slow, windows are dropped", {{"file", file_}});
      }
    }
    changed_.notify_all();
  }

  /// The writer's thread.
  void write_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) {
        return;
      }
      const Write write = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      lock.unlock();
      carry_out(write);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
    }
  }

  void carry_out(const Write& write) {
    const std::scoped_lock lock(database_mutex_);
    if (!database_) {
      return;
    }
    Result<void> written = write();
    if (!written && written.error().code == Code::kCorrupt) {
      database_.reset();
      Result<Database> anew = begin_anew(written.error());
      if (!anew) {
        warn("it is not used any more", anew.error());
        return;
      }
      database_ = std::move(*anew);
      written = write();
    }
    if (!written && !std::exchange(failing_, true)) {
      warn("a window was not written", written.error());
    } else if (written) {
      failing_ = false;
    }
  }

  Result<void> read_into(PastLoads& all, std::int64_t before) {
    Result<Statement> select = database_->prepare(kSelect);
    if (!select) {
      return select.error();
    }
    select->bind(1, window_.count());
    select->bind(2, before);
    std::int64_t unsound = 0;
    for (;;) {
      const Result<bool> row = select->step();
      if (!row) {
        return row.error();
      }
      if (!*row) {
        break;
      }
      const WindowLoad entry{.window = select->integer(1),
                             .load = {.mean = select->number(2), .peak = select->number(3)}};
      const bool sound = entry.window >= 0 && std::isfinite(entry.load.mean) &&
                         std::isfinite(entry.load.peak) && entry.load.mean >= 0 &&
                         entry.load.peak >= 0;
      unsound += sound ? 0 : 1;
      if (sound) {
        all[select->text(0)].push_back(entry);
      }
    }
    if (unsound > 0) {
      warn("some windows are left out",
           {Code::kCorrupt, std::to_string(unsound) + " have loads that cannot be"});
    }
    return {};
  }

  template <class Writes>
  Result<void> in_transaction(const Writes& writes) {
    if (Result<void> begun = database_->run("BEGIN IMMEDIATE"); !begun) {
      return begun;
    }
    Result<void> written = writes();
    const Result<void> ended = database_->run(written ? "COMMIT" : "ROLLBACK");
    return written ? ended : written;
  }

  Result<void> write_loads(const PastLoads& loads) {
    return in_transaction([&] { return insert(loads); });
  }

  Result<void> add(std::int64_t window, const ModelTraffic& traffic) {
    Result<Statement> add = database_->prepare(
        "INSERT INTO traffic VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "arrivals = arrivals + excluded.arrivals, finished = finished + excluded.finished, "
        "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
        "prompt_squares = prompt_squares + excluded.prompt_squares, "
        "answer_tokens = answer_tokens + excluded.answer_tokens, "
        "answer_squares = answer_squares + excluded.answer_squares");
    if (!add) {
      return add.error();
    }
    for (const auto& [model, asked] : traffic) {
      add->bind(1, window_.count());
      add->bind(2, window);
      add->bind(3, std::string_view(model));
      add->bind(4, asked.arrivals);
      add->bind(5, asked.finished);
      add->bind(6, asked.prompt_tokens);
      add->bind(7, asked.prompt_squares);
      add->bind(8, asked.answer_tokens);
      add->bind(9, asked.answer_squares);
      if (Result<void> done = add->run(); !done) {
        return done;
      }
    }
    return {};
  }

  Result<void> insert(const PastLoads& loads) {
    Result<Statement> insert = database_->prepare(
        "INSERT OR REPLACE INTO load (length_ns, start, model, mean, peak) "
        "VALUES (?, ?, ?, ?, ?)");
    if (!insert) {
      return insert.error();
    }
    for (const auto& [model, windows] : loads) {
      for (const WindowLoad& window : windows) {
        insert->bind(1, window_.count());
        insert->bind(2, window.window);
        insert->bind(3, std::string_view(model));
        insert->bind(4, window.load.mean);
        insert->bind(5, window.load.peak);
        if (Result<void> done = insert->run(); !done) {
          return done;
        }
      }
    }
    return {};
  }

  Result<void> forget_all_but(std::int64_t windows) {
    const Result<void> loads = forget_in("load", windows);
    return loads ? forget_in("traffic", windows) : loads;
  }

  Result<void> forget_in(const std::string& table, std::int64_t windows) {
    Result<Statement> forget = database_->prepare(
        "DELETE FROM " + table + " WHERE length_ns <> ?1 OR start < (SELECT min(start) FROM " +
        "(SELECT DISTINCT start FROM " + table +
        " WHERE length_ns = ?1 ORDER BY start DESC LIMIT ?2))");
    if (!forget) {
      return forget.error();
    }
    forget->bind(1, window_.count());
    forget->bind(2, windows);
    return forget->run();
  }

  const std::string file_;
  const Duration window_;
  Access access_ = Access::kNone;

  std::mutex database_mutex_{};  ///< Guards the next two.
  std::optional<Database> database_{};
  bool failing_ = false;  ///< It was said that writing fails.

  std::mutex mutex_{};  ///< Guards the rest.
  std::condition_variable changed_{};
  std::deque<Write> waiting_{};
  bool writing_ = false;
  bool dropping_ = false;
  bool ending_ = false;
  Thread writer_{};  ///< Last: it uses all the others.
};

std::unique_ptr<HistoryStore> HistoryStore::open(const std::string& directory, Duration window) {
  return std::unique_ptr<HistoryStore>(
      new HistoryStore(std::make_unique<Impl>((fs::path(directory) / kFile).string(), window)));
}

HistoryStore::HistoryStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HistoryStore::~HistoryStore() = default;

Access HistoryStore::access() const {
  return impl_->access();
}

PastLoads HistoryStore::read_all(std::int64_t before) {
  return impl_->read_all(before);
}

void HistoryStore::record(std::int64_t window, ModelLoads loads) {
  impl_->record(window, std::move(loads));
}

void HistoryStore::enter(PastLoads loads) {
  impl_->enter(std::move(loads));
}

void HistoryStore::count(std::int64_t window, ModelTraffic traffic) {
  impl_->count(window, std::move(traffic));
}

void HistoryStore::prune(std::int64_t windows) {
  impl_->prune(windows);
}

void HistoryStore::flush() {
  impl_->flush();
}

}  // namespace heddle::history
