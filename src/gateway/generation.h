#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>

#include "gateway/http_exchange.h"
#include "gateway/live_requests.h"

namespace heddle::gateway {

/// Runs a job and answers the client: as a whole, or as a stream of events. Ends early, and cancels
/// what runs, when the client hangs up. `http` outlives the awaitable.
boost::asio::awaitable<void> generate(HttpExchange& http, std::shared_ptr<LiveRequests> live);

}  // namespace heddle::gateway
