#include "gateway/peers.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "gateway/peer_connection.h"

namespace heddle::gateway {

void Peers::assign(const std::vector<config::PeerConfig>& peers) {
  by_model_.clear();
  models_.clear();
  for (const config::PeerConfig& config : peers) {
    auto peer = std::make_shared<Peer>(Peer{.config = config});
    if (config.address.tls) {
      auto tls = peer_tls(config);
      if (tls) {
        peer->tls = std::move(*tls);
      } else {
        peer->trouble = tls.error().message;
        log::warning("a peer cannot be asked", {{"peer", config.name}, {"why", peer->trouble}});
      }
    }
    for (const std::string& model : config.models) {
      by_model_.insert_or_assign(model, peer);
      by_model_.emplace(config.name + "/" + model, peer);
      models_.emplace_back(model, config.name);
    }
  }
}

std::string name_at_peer(const Peer& peer, std::string model) {
  const std::string before = peer.config.name + "/";
  const bool whole = std::ranges::find(peer.config.models, model) != peer.config.models.end();
  return whole || !model.starts_with(before) ? std::move(model) : model.substr(before.size());
}

std::shared_ptr<Peer> Peers::find(std::string_view model) const {
  const auto found = by_model_.find(model);
  return found == by_model_.end() ? nullptr : found->second;
}

}  // namespace heddle::gateway
