#include "cluster/election.h"

#include <exception>
#include <random>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"

namespace heddle::cluster {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace election;

namespace {

constexpr Duration kPatienceToLeave = 1s;
constexpr unsigned kUnusedBits = 2;  // Holders have 62.

std::string_view words_of(Why why) {
  switch (why) {
    case Why::kStopped:
      return "it leaves";
    case Why::kSuperseded:
      return "another has taken over";
    case Why::kUnreached:
      return "the registry took no renewal in time";
  }
  return "";
}

/// A record as the core knows it: what cannot be read is a stranger's.
std::optional<ElectionRecord> read_record(const std::optional<Record>& record) {
  if (!record) {
    return std::nullopt;
  }
  constexpr std::uint64_t kStranger = 1;  // Which draw_holder() never gives.
  const Result<ElectionRecord> read = parse_election_record(record->value);
  return read ? *read : ElectionRecord{.name = "unknown", .holder = kStranger};
}

}  // namespace

std::uint64_t draw_holder() {
  std::random_device chance;
  std::uint64_t holder = 0;
  while (holder < 2) {
    holder = ((std::uint64_t{chance()} << 32U) | chance()) >> kUnusedBits;
  }
  return holder;
}

class Election::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       std::shared_ptr<Registry> registry,
       std::string key,
       ElectionRecord self,
       ElectionHandlers handlers,
       ElectionTimes times)
      : executor_(executor),
        registry_(std::move(registry)),
        key_(std::move(key)),
        handlers_(std::move(handlers)),
        times_(times),
        timer_(executor),
        core_(times, std::move(self)) {}

  void start() { spawn(tick(shared_from_this())); }

  void end() {
    ended_ = true;
    watch_.reset();
    timer_.cancel();
  }

  [[nodiscard]] std::optional<Term> leads() const { return core_.leads(steady_now()); }
  [[nodiscard]] bool over() const { return core_.over(); }
  [[nodiscard]] const ElectionTimes& times() const { return times_; }
  [[nodiscard]] const asio::any_io_executor& executor() const { return executor_; }

  void tell(const Event& event) {
    if (ended_) {
      return;
    }
    std::vector<Command> commands;
    core_.step(steady_now(), event, commands);
    for (const Command& each : commands) {
      if (!ended_) {
        std::visit([this](const auto& one) { obey(one); }, each);
      }
    }
  }

 private:
  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(executor_, std::move(work), [](const std::exception_ptr& failure) {
      HEDDLE_CHECK(failure == nullptr);
    });
  }

  static asio::awaitable<void> tick(std::shared_ptr<Impl> self) {
    while (!self->ended_) {
      self->timer_.expires_after(self->times_.tick);
      co_await self->timer_.async_wait(asio::as_tuple(asio::use_awaitable));
      self->tell(Tick{});
    }
  }

  void obey(const Read& /*command*/) { spawn(read(shared_from_this())); }
  void obey(const Put& command) { spawn(put(shared_from_this(), command)); }
  void obey(const Elected& command) {
    if (handlers_.elected) {
      handlers_.elected(command.term);
    }
  }
  void obey(const Lost& command) {
    if (handlers_.lost) {
      handlers_.lost(command.why, words_of(command.why));
    }
  }
  void obey(const Leader& command) {
    if (handlers_.leader) {
      handlers_.leader(command);
    }
  }

  /// By a listing where there is no watch, which then begins right after it.
  static asio::awaitable<void> read(std::shared_ptr<Impl> self) {
    ReadDone done;
    if (self->watch_ == nullptr) {
      Result<Listing> listing = co_await self->registry_->list(self->key_);
      done.reached = listing.has_value();
      if (listing && !self->ended_) {
        self->begin_watch(listing->revision);
        for (const Record& each : listing->records) {
          if (each.key == self->key_) {
            done.record = read_record(each);
            done.revision = each.revision;
          }
        }
      }
    } else {
      const Result<std::optional<Record>> found = co_await self->registry_->get(self->key_);
      done.reached = found.has_value();
      if (found && *found) {
        done.record = read_record(*found);
        done.revision = (*found)->revision;
      }
    }
    if (!done.reached) {  // Which some registries know at once.
      asio::steady_timer pause(self->executor_, self->times_.tick);
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    self->tell(done);
  }

  static asio::awaitable<void> put(std::shared_ptr<Impl> self, Put put) {
    const Result<Revision> done = co_await self->registry_->put_if(
        self->key_, put.expected, write_election_record(put.record));
    PutDone answer;
    if (done) {
      answer = {PutDone::Outcome::kPut, *done};
    } else if (done.error().code == Code::kFailedPrecondition) {
      answer.outcome = PutDone::Outcome::kRefused;
    }
    self->tell(answer);
  }

  void begin_watch(Revision after) {
    watch_ = registry_->watch(key_, after, [this](const Change& change) { saw(change); });
  }

  void saw(const Change& change) {
    if (change.kind == Change::Kind::kLost) {
      watch_.reset();
      tell(LostTrack{});
    } else if (change.record.key == key_) {
      const bool removed = change.kind == Change::Kind::kRemoved;
      tell(Saw{.record = removed ? std::nullopt : read_record(change.record),
               .revision = change.record.revision});
    }
  }

  asio::any_io_executor executor_;
  std::shared_ptr<Registry> registry_;
  std::string key_;
  ElectionHandlers handlers_;
  ElectionTimes times_;
  asio::steady_timer timer_;
  ElectionCore core_;
  std::unique_ptr<Watch> watch_{};  ///< Null: to be begun by the next read.
  bool ended_ = false;
};

Election::Election(const asio::any_io_executor& executor,
                   std::shared_ptr<Registry> registry,
                   std::string key,
                   std::string name,
                   std::string address,
                   ElectionHandlers handlers,
                   ElectionTimes times)
    : impl_(std::make_shared<Impl>(
          executor,
          std::move(registry),
          std::move(key),
          ElectionRecord{
              .name = std::move(name), .address = std::move(address), .holder = draw_holder()},
          std::move(handlers),
          times)) {
  impl_->start();
}

Election::~Election() {
  impl_->end();
}

std::optional<Term> Election::leads() const {
  return impl_->leads();
}

void Election::heard_of(Term term) {
  impl_->tell(HeardOf{.term = term});
}

asio::awaitable<void> Election::leave() {
  const std::shared_ptr<Impl> impl = impl_;
  impl->tell(Stop{});
  asio::steady_timer timer(impl->executor());
  for (const Instant deadline = steady_now() + kPatienceToLeave;
       !impl->over() && steady_now() < deadline;) {
    timer.expires_after(impl->times().tick);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace heddle::cluster
