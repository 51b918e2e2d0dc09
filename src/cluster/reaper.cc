#include "cluster/reaper.h"

#include <exception>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cluster/expiry.h"

namespace heddle::cluster {

namespace asio = boost::asio;

class Reaper::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(const asio::any_io_executor& executor) : timer_(executor) {}

  void serve(std::weak_ptr<Registry> registry) { registry_ = std::move(registry); }

  void stop() {
    over_ = true;
    timer_.cancel();
  }

  void saw(const std::string& key, Revision revision, Duration life) {
    expiry_.saw(key, revision, life);
    if (!running_ && expiry_.interval()) {
      running_ = true;
      asio::co_spawn(timer_.get_executor(), run(shared_from_this()), [](std::exception_ptr error) {
        HEDDLE_CHECK(error == nullptr);
      });
    }
  }

  void forget(const std::string& key) { expiry_.forget(key); }

 private:
  static asio::awaitable<void> run(std::shared_ptr<Impl> self) {
    while (!self->over_ && self->expiry_.interval()) {
      self->timer_.expires_after(*self->expiry_.interval());
      co_await self->timer_.async_wait(asio::as_tuple(asio::use_awaitable));
      const std::shared_ptr<Registry> registry = self->registry_.lock();
      if (!self->over_ && registry != nullptr && self->expiry_.interval()) {
        co_await self->look(*registry);
      }
    }
    self->running_ = false;
  }

  asio::awaitable<void> look(Registry& registry) {
    const auto found = co_await registry.get(expiry_.any());
    if (over_) {
      co_return;
    }
    if (!found && found.error().code != Code::kCorrupt) {
      expiry_.not_reached();
      co_return;
    }
    expiry_.reached(steady_now());
    for (const Record& each : expiry_.take_due()) {
      const Result<void> removed = co_await registry.remove_if(each.key, each.revision);
      if (over_) {
        co_return;
      }
      if (!removed && removed.error().code == Code::kFailedPrecondition) {
        (void)co_await registry.get(each.key);  // Tells saw() or forget() what is there.
      }
      if (over_) {
        co_return;
      }
    }
  }

  std::weak_ptr<Registry> registry_{};
  asio::steady_timer timer_;
  Expiry expiry_{};
  bool running_ = false;
  bool over_ = false;
};

Reaper::Reaper(const asio::any_io_executor& executor) : impl_(std::make_shared<Impl>(executor)) {}

Reaper::~Reaper() {
  impl_->stop();
}

void Reaper::serve(std::weak_ptr<Registry> registry) {
  impl_->serve(std::move(registry));
}

void Reaper::saw(const std::string& key, Revision revision, Duration life) {
  impl_->saw(key, revision, life);
}

void Reaper::forget(const std::string& key) {
  impl_->forget(key);
}

}  // namespace heddle::cluster
