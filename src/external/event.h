#pragma once

#include <list>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/time.h"

namespace heddle::external {

/// Something that happens, for which any number of coroutines may wait. Loop thread only; outlives
/// those who wait.
class Event {
 public:
  explicit Event(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  /// Wakes all who wait now.
  void notify() {
    for (boost::asio::steady_timer* timer : waiting_) {
      timer->cancel();
    }
  }

  /// Returns after notify(), or when `patience` has passed.
  boost::asio::awaitable<void> wait(Duration patience) {
    Place place(*this, patience);
    co_await place.timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }

 private:
  struct Place {
    Place(Event& of, Duration patience)
        : event(of),
          timer(of.executor_, patience),
          at(of.waiting_.insert(of.waiting_.end(), &timer)) {}
    ~Place() { event.waiting_.erase(at); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    Event& event;
    boost::asio::steady_timer timer;
    std::list<boost::asio::steady_timer*>::iterator at;
  };

  boost::asio::any_io_executor executor_;
  std::list<boost::asio::steady_timer*> waiting_{};
};

}  // namespace heddle::external
