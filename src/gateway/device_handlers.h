#pragma once

#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// GET /api/devices: pages of each device and of the host, by kind of lease and by model.
Task<void> devices(std::shared_ptr<Context> context, HttpExchange& http, std::string);

/// GET /api/devices/history: the same, as it was in the last minutes.
Task<void> device_history(std::shared_ptr<Context> context, HttpExchange& http, std::string);

/// Notes for that how things are, again and again, until the gateway ends.
Task<void> keep_device_history(std::shared_ptr<Context> context);

}  // namespace heddle::gateway
