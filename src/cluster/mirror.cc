#include "cluster/mirror.h"

#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"

namespace heddle::cluster {

namespace asio = boost::asio;

class Mirror::Impl : public std::enable_shared_from_this<Mirror::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       std::shared_ptr<Registry> registry,
       std::string prefix,
       std::function<void()> changed,
       Duration pause)
      : executor_(executor),
        registry_(std::move(registry)),
        prefix_(std::move(prefix)),
        changed_(std::move(changed)),
        pause_(pause),
        timer_(executor) {}

  void start() {
    asio::co_spawn(executor_, list(shared_from_this()), [](const std::exception_ptr& failure) {
      HEDDLE_CHECK(failure == nullptr);
    });
  }

  void end() {
    ended_ = true;
    watch_.reset();
    timer_.cancel();
  }

  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] const std::map<std::string, Record>& records() const { return records_; }

 private:
  /// Until it has a listing, after which a watch tells of changes.
  static asio::awaitable<void> list(std::shared_ptr<Impl> self) {
    while (!self->ended_) {
      const Result<Listing> listing = co_await self->registry_->list(self->prefix_);
      if (self->ended_) {
        co_return;
      }
      if (listing) {
        self->take(*listing);
        co_return;
      }
      self->timer_.expires_after(self->pause_);
      co_await self->timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
  }

  void take(const Listing& listing) {
    std::map<std::string, Record> now;
    for (const Record& record : listing.records) {
      now[record.key] = record;
    }
    watch_ =
        registry_->watch(prefix_, listing.revision, [this](const Change& change) { hear(change); });
    const bool same = known_ && now == records_;
    known_ = true;
    records_ = std::move(now);
    if (!same) {
      changed_();  // Which may end this.
    }
  }

  void hear(const Change& change) {
    const std::shared_ptr<Impl> self = shared_from_this();
    switch (change.kind) {
      case Change::Kind::kPut:
        records_[change.record.key] = change.record;
        break;
      case Change::Kind::kRemoved:
        records_.erase(change.record.key);
        break;
      case Change::Kind::kLost:
        watch_.reset();
        start();
        return;
    }
    changed_();
  }

  asio::any_io_executor executor_;
  std::shared_ptr<Registry> registry_;
  std::string prefix_;
  std::function<void()> changed_;
  Duration pause_;
  asio::steady_timer timer_;
  std::map<std::string, Record> records_{};
  std::unique_ptr<Watch> watch_{};
  bool known_ = false;
  bool ended_ = false;
};

Mirror::Mirror(const asio::any_io_executor& executor,
               std::shared_ptr<Registry> registry,
               std::string prefix,
               std::function<void()> changed,
               Duration pause)
    : impl_(std::make_shared<Impl>(
          executor, std::move(registry), std::move(prefix), std::move(changed), pause)) {
  impl_->start();
}

Mirror::~Mirror() {
  impl_->end();
}

bool Mirror::known() const {
  return impl_->known();
}
const std::map<std::string, Record>& Mirror::records() const {
  return impl_->records();
}

}  // namespace heddle::cluster
