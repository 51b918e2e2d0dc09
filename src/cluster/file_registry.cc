#include "cluster/file_registry.h"

#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cluster/file_log.h"
#include "cluster/reaper.h"

namespace heddle::cluster {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

/// A look is two calls of the system where nothing has changed.
constexpr Duration kLookAgain = 10ms;
constexpr Duration kLockAgain = 1ms;

using SharedLog = std::shared_ptr<FileLog>;

struct FileWatchState {
  SharedLog log;
  std::string name;
  std::string prefix;
  Revision position;
  std::uint64_t breaks;
  WatchHandler handler;
  std::function<void(const LogLine&)> saw;  ///< Called before the handler.
  asio::steady_timer timer;
  bool over = false;
  std::string trouble{};

  void end() {
    over = true;
    timer.cancel();
  }
  void lose(const std::string& why) {
    trouble = why;
    over = true;
    handler({.kind = Change::Kind::kLost, .why = name + ": " + why});
  }

  void look() {
    const Result<void> read = log->read();
    trouble = read ? std::string() : read.error().message;
    if (!read) {
      return;
    }
    if (log->breaks() != breaks) {
      lose("its file is another one than before, or from an earlier day");
      return;
    }
    const std::optional<std::vector<LogLine>> changes = log->changes_after(position);
    if (!changes) {
      lose("changes after revision " + std::to_string(position) + " are not known");
      return;
    }
    for (const LogLine& each : *changes) {
      position = each.record.revision;
      if (each.record.key.starts_with(prefix) && !over) {
        saw(each);
        handler({.kind = each.removed ? Change::Kind::kRemoved : Change::Kind::kPut,
                 .record = each.record});
      }
    }
  }
};

asio::awaitable<void> keep_looking(std::shared_ptr<FileWatchState> watch) {
  while (!watch->over) {
    watch->timer.expires_after(kLookAgain);
    co_await watch->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (!watch->over) {
      watch->look();
    }
  }
}

class FileWatch final : public Watch {
 public:
  explicit FileWatch(std::shared_ptr<FileWatchState> state) : state_(std::move(state)) {}
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch() override { state_->end(); }
  [[nodiscard]] std::string trouble() const override { return state_->trouble; }

 private:
  std::shared_ptr<FileWatchState> state_;
};

class FileRegistry final : public Registry {
 public:
  FileRegistry(const asio::any_io_executor& executor,
               FileLog log,
               std::string name,
               RegistryOptions options)
      : executor_(executor),
        log_(std::make_shared<FileLog>(std::move(log))),
        name_(std::move(name)),
        options_(options),
        reaper_(executor) {}

  void start() { reaper_.serve(weak_from_this()); }

  asio::awaitable<Result<std::optional<Record>>> get(std::string key) override {
    if (const Result<void> checked = check_key(key); !checked) {
      co_return checked.error();
    }
    if (const Result<void> read = log_->read(); !read) {
      co_return of(read.error());
    }
    const auto found = log_->records().find(key);
    if (found == log_->records().end()) {
      reaper_.forget(key);
      co_return std::optional<Record>();
    }
    saw(found->second);
    co_return std::optional<Record>(found->second.record);
  }

  asio::awaitable<Result<Listing>> list(std::string prefix) override {
    if (const Result<void> read = log_->read(); !read) {
      co_return of(read.error());
    }
    Listing listing{.revision = log_->revision()};
    for (auto at = log_->records().lower_bound(prefix);
         at != log_->records().end() && at->first.starts_with(prefix);
         ++at) {
      saw(at->second);
      listing.records.push_back(at->second.record);
    }
    co_return listing;
  }

  asio::awaitable<Result<Revision>> put_if(std::string key,
                                           Revision expected,
                                           std::string value,
                                           Duration life) override {
    if (const Result<void> checked = check_record(key, value); !checked) {
      co_return checked.error();
    }
    LogLine line{.record = {.key = std::move(key), .value = std::move(value)}, .life = life};
    const Result<Revision> put = co_await write_if(line, expected);
    if (put) {
      line.record.revision = *put;
      saw(line);
    }
    co_return put;
  }

  asio::awaitable<Result<void>> remove_if(std::string key, Revision expected) override {
    if (const Result<void> checked = check_key(key); !checked) {
      co_return checked.error();
    }
    const LogLine line{.record = {.key = std::move(key)}, .removed = true};
    const Result<Revision> removed = co_await write_if(line, expected);
    if (!removed) {
      co_return removed.error();
    }
    reaper_.forget(line.record.key);
    co_return Result<void>();
  }

  std::unique_ptr<Watch> watch(std::string prefix, Revision after, WatchHandler handler) override {
    auto state =
        std::make_shared<FileWatchState>(FileWatchState{.log = log_,
                                                        .name = name_,
                                                        .prefix = std::move(prefix),
                                                        .position = after,
                                                        .breaks = log_->breaks(),
                                                        .handler = std::move(handler),
                                                        .saw = note(),
                                                        .timer = asio::steady_timer(executor_)});
    asio::co_spawn(executor_, keep_looking(state), [](const std::exception_ptr& failure) {
      HEDDLE_CHECK(failure == nullptr);
    });
    return std::make_unique<FileWatch>(std::move(state));
  }

  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  [[nodiscard]] Error of(const Error& why) const { return {why.code, name_ + ": " + why.message}; }

  void saw(const LogLine& line) { reaper_.saw(line.record.key, line.record.revision, line.life); }

  /// Tells the reaper, as long as this lives.
  std::function<void(const LogLine&)> note() {
    return [this, weak = weak_from_this()](const LogLine& line) {
      const std::shared_ptr<Registry> alive = weak.lock();
      if (alive != nullptr && line.removed) {
        reaper_.forget(line.record.key);
      } else if (alive != nullptr) {
        saw(line);
      }
    };
  }

  asio::awaitable<Result<Revision>> write_if(LogLine line, Revision expected) {
    asio::steady_timer timer(executor_);
    const Instant deadline = steady_now() + options_.patience;
    Result<std::optional<Descriptor>> lock = log_->lock();
    while (lock && !*lock && steady_now() < deadline) {
      timer.expires_after(kLockAgain);
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
      lock = log_->lock();
    }
    if (!lock) {
      co_return of(lock.error());
    }
    if (!*lock) {
      co_return Error{Code::kDeadlineExceeded,
                      name_ + ": another process holds its file \"lock\", and does not let it go"};
    }
    const auto found = log_->records().find(line.record.key);
    const Revision present = found == log_->records().end() ? 0 : found->second.record.revision;
    if (present != expected || (line.removed && present == 0)) {
      co_return Error{Code::kFailedPrecondition,
                      name_ + ": record \"" + line.record.key + "\" has revision " +
                          std::to_string(present) + " instead of " + std::to_string(expected)};
    }
    const Result<Revision> written = log_->append(std::move(line));
    co_return written ? written : of(written.error());
  }

  asio::any_io_executor executor_;
  SharedLog log_;
  std::string name_;
  RegistryOptions options_;
  Reaper reaper_;
};

}  // namespace

Result<std::shared_ptr<Registry>> open_file(const asio::any_io_executor& executor,
                                            const FileUrl& url,
                                            RegistryOptions options) {
  const std::string name = "registry file:" + url.directory;
  Result<FileLog> log = FileLog::open(url.directory);
  if (!log) {
    return Error{log.error().code, name + ": " + log.error().message};
  }
  auto registry = std::make_shared<FileRegistry>(executor, std::move(*log), name, options);
  registry->start();
  return std::shared_ptr<Registry>(std::move(registry));
}

}  // namespace heddle::cluster
