#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Streams what `take` gives, asked several times a second, until the client hangs up or the server
/// ends. With `comments` a stream of events that was silent for a while says so. The coroutine
/// keeps `take`. Loop thread.
Task<void> stream_news(std::shared_ptr<Context> context,
                       HttpExchange& http,
                       std::string content_type,
                       bool comments,
                       std::function<std::string()> take);

}  // namespace heddle::gateway
