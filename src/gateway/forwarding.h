#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"
#include "gateway/upstream.h"

namespace heddle::gateway {

/// A client's request that an external engine answers.
struct ForwardJob {
  std::shared_ptr<CatalogModel> model{};
  UpstreamRequest request{};
  std::string name{};      ///< The model, as the client called it.
  std::string endpoint{};  ///< For the trace.
  bool events = false;     ///< The client wants server-sent events, so it can be told of waiting.
  bool chat = false;       ///< They are chunks of a chat.
  std::int32_t priority = 0;
  Asker asker{};
  std::int64_t max_tokens = 0;                         ///< As BodyFacts has it.
  std::shared_ptr<const Quotas::Reserved> reserved{};  ///< As GenerationJob has it.
  std::shared_ptr<RequestSpan> span{};                 ///< Null where it is in no trace.
};

/// Has the model's engine brought up, forwards the request, and passes its answer on: status,
/// end-to-end headers and body as they are, read only as fast as the client takes them. While
/// nothing of an answer has gone to the client, an engine that dies or cannot be reached is waited
/// for and asked again. Ends the exchange with the engine at once when the client hangs up.
Task<void> forward(std::shared_ptr<Context> context, HttpExchange& http, ForwardJob job);

}  // namespace heddle::gateway
