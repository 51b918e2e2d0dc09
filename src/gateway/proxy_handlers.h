#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gateway/forward_body.h"
#include "gateway/forwarding.h"
#include "gateway/handlers.h"
#include "gateway/peer_forwarding.h"
#include "gateway/task.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

/// What to forward, if the request names a model that an external engine serves.
[[nodiscard]] std::optional<ForwardJob> forward_job(const Context& context,
                                                    const HttpRequest& request);

/// The same of a model that a peer has.
[[nodiscard]] std::optional<PeerJob> peer_job(const Context& context, const HttpRequest& request);

/// Whether there are models that others serve.
[[nodiscard]] inline bool forwards(const Context& context) {
  return context.catalog.has_engines() || !context.peers.empty();
}

/// What the body says of where it goes, read on the pool where it is long; what to tell the client
/// where it cannot be read now.
Task<api::Parsed<Result<BodyFacts>>> facts_of(Context& context, HttpExchange& http);

/// Forwards `job`, unless its model has too many requests, or its key's quota too little left.
Task<void> admit_and_forward(std::shared_ptr<Context> context, HttpExchange& http, ForwardJob job);

/// The same of a peer's model.
Task<void> admit_and_ask_peer(std::shared_ptr<Context> context, HttpExchange& http, PeerJob job);

/// Has the pool read a long body, then forwards it or has `ours` answer.
Task<void> forward_or(std::shared_ptr<Context> context,
                      HttpExchange& http,
                      Handler ours,
                      std::string id);

/// A handler: `ours` for models of our own, and for requests that name none; those for others are
/// forwarded.
template <Handler ours>
Task<void> ours_or_theirs(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  if (forwards(*context) && http.request().body.size() > kBodyAtOnce) {
    return forward_or(std::move(context), http, ours, std::move(id));
  }
  if (std::optional<ForwardJob> job = forward_job(*context, http.request())) {
    return admit_and_forward(std::move(context), http, std::move(*job));
  }
  if (std::optional<PeerJob> job = peer_job(*context, http.request())) {
    return admit_and_ask_peer(std::move(context), http, std::move(*job));
  }
  return ours(std::move(context), http, std::move(id));
}

}  // namespace heddle::gateway
