#pragma once

#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// GET /api/decisions[?model=NAME]: what was decided lately, and why, oldest first.
Task<void> list_decisions(std::shared_ptr<Context> context, HttpExchange& http, std::string id);

/// GET /api/forecasts: how much each model is asked for and expected to be, and what its requests
/// found.
Task<void> list_forecasts(std::shared_ptr<Context> context, HttpExchange& http, std::string id);

}  // namespace heddle::gateway
