#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/result.h"
#include "base/time.h"

namespace heddle::external {

/// A few threads for what blocks, so that the loop never does.
class BlockingPool {
 public:
  explicit BlockingPool(std::size_t threads) : pool_(threads) {}
  ~BlockingPool() { finish(); }
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  /// Waits for what still runs; what is asked for later is not begun. Before the loops that wait
  /// for it end.
  void finish() { pool_.join(); }

  /// Runs `work`, which returns a Result, in one of the threads, and returns what it did.
  /// kDeadlineExceeded where it takes longer than `patience`: then it still runs, and what it
  /// returns is lost. So it owns all that it uses.
  template <class Work>
  boost::asio::awaitable<std::invoke_result_t<Work>> run(std::string what,
                                                         Duration patience,
                                                         Work work) {
    using Outcome = std::invoke_result_t<Work>;
    struct Shared {
      explicit Shared(const boost::asio::any_io_executor& executor) : done(executor) {}
      boost::asio::steady_timer done;
      std::optional<Outcome> outcome{};
    };
    const boost::asio::any_io_executor loop = co_await boost::asio::this_coro::executor;
    const auto shared = std::make_shared<Shared>(loop);
    boost::asio::post(pool_, [loop, shared, work = std::move(work)]() mutable {
      auto outcome = std::make_shared<Outcome>(work());
      boost::asio::post(loop, [shared, outcome] {
        shared->outcome = std::move(*outcome);
        shared->done.cancel();
      });
    });
    shared->done.expires_after(patience);
    co_await shared->done.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    if (!shared->outcome) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
      co_return Error{Code::kDeadlineExceeded,
                      what + " took more than " + std::to_string(ms) + " ms"};
    }
    co_return std::move(*shared->outcome);
  }

 private:
  boost::asio::thread_pool pool_;
};

}  // namespace heddle::external
