#pragma once

#include <memory>
#include <string>

#include "gateway/handlers.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Has `handler` answer a request that asks a model. Where its name stands for another by a
/// selector or the active profile, the handler sees the body with that one's instead.
Task<void> answer_under_names(std::shared_ptr<Context> context,
                              HttpExchange& http,
                              Handler handler,
                              std::string id);

}  // namespace heddle::gateway
