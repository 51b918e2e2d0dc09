#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/result.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Waits for what is answered once, as calls to core::Serving are: `begin` is given whom to tell.
/// That may happen from within it, so that the coroutine goes on from the loop.
inline Task<Result<void>> answered(
    boost::asio::io_context& loop,
    std::function<void(std::function<void(Result<void>)> done)> begin) {
  auto start = [&loop, &begin](auto handler) {
    auto shared = std::make_shared<decltype(handler)>(std::move(handler));
    begin([shared, &loop](Result<void> result) {
      boost::asio::post(
          loop, [shared, result = std::move(result)]() mutable { (*shared)(std::move(result)); });
    });
  };
  auto [result] = co_await boost::asio::async_initiate<const AwaitToken, void(Result<void>)>(
      std::move(start), kAwait);
  co_return std::move(result);
}

}  // namespace heddle::gateway
