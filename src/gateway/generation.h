#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>

#include "gateway/http_exchange.h"
#include "gateway/live_requests.h"

namespace heddle::gateway {

/// Lets the job run and its inbox hear when the client hangs up. `http` outlives `live`'s answer.
void watch_and_start(HttpExchange& http, LiveRequests& live);
/// Lets something happen. False when the client has gone.
boost::asio::awaitable<bool> wait_for_news(HttpExchange& http, LiveRequests& live);
/// Answers with the error of the job.
boost::asio::awaitable<void> fail(HttpExchange& http, LiveRequests& live);

/// Runs a job and answers the client: as a whole, or as a stream of events. Ends early, and cancels
/// what runs, when the client hangs up. `http` outlives the awaitable.
boost::asio::awaitable<void> generate(HttpExchange& http, std::shared_ptr<LiveRequests> live);

}  // namespace heddle::gateway
