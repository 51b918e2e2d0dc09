#pragma once

#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// GET /api/engines: the external engines, and what swapping them costs.
Task<void> list_engines(std::shared_ptr<Context> context, HttpExchange& http, std::string id);

/// GET /metrics?model=NAME: what the model's engine answers to GET /metrics. One that does not run
/// is not woken: 503.
Task<void> respond_engine_metrics(std::shared_ptr<Context> context,
                                  HttpExchange& http,
                                  std::string model);

}  // namespace heddle::gateway
