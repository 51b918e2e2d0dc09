#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "gateway/context.h"
#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// Where an engine listens, as a URL.
[[nodiscard]] std::string engine_url(const config::EngineConfig& engine);

/// GET /api/engines: the engines that are not ours, and what swapping them costs.
boost::asio::awaitable<void> list_engines(std::shared_ptr<Context> context,
                                          HttpExchange& http,
                                          std::string id);

/// GET /metrics?model=NAME: what the model's engine answers to GET /metrics. One that does not run
/// is not woken: 503.
boost::asio::awaitable<void> respond_engine_metrics(std::shared_ptr<Context> context,
                                                    HttpExchange& http,
                                                    std::string model);

}  // namespace heddle::gateway
