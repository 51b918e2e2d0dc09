#pragma once

#include <memory>
#include <string>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/peers.h"
#include "gateway/task.h"
#include "gateway/upstream.h"

namespace heddle::gateway {

/// A client's request that a peer answers.
struct PeerJob {
  std::shared_ptr<Peer> peer{};
  std::string model{};  ///< As the client called it.
  UpstreamRequest request{};
  std::int64_t max_tokens = 0;                         ///< As BodyFacts has it.
  std::shared_ptr<const Quotas::Reserved> reserved{};  ///< As GenerationJob has it.
};

/// The headers of a client's request as a peer gets them: nothing that opens anything here or that
/// a browser keeps, and the peer's key in its place.
[[nodiscard]] HttpFields headers_for_peer(const HttpRequest& request, const std::string& key);

/// Forwards the request over a connection of its own, and passes the answer on: status, end-to-end
/// headers and body as they are, read only as fast as the client takes them. 502 where the peer
/// cannot be reached or trusted, or redirects; 504 where it takes too long. Ends the exchange with
/// the peer at once when the client hangs up. What was used counts for the client's key.
Task<void> forward_to_peer(std::shared_ptr<Context> context, HttpExchange& http, PeerJob job);

}  // namespace heddle::gateway
