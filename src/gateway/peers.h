#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ssl/context.hpp>

#include "config/config.h"
#include "gateway/model_queue.h"

namespace heddle::gateway {

/// A server elsewhere that has models.
struct Peer {
  config::PeerConfig config{};
  std::shared_ptr<boost::asio::ssl::context> tls{};  ///< Null where it speaks none.
  std::string trouble{};  ///< Why it cannot be asked; empty: nothing that is known.
  ModelQueue queue{};     ///< Its requests that have not ended.
};

/// What the peer calls a model that a request names so: without "PEER/" before it, where it has no
/// model of that whole name.
[[nodiscard]] std::string name_at_peer(const Peer& peer, std::string model);

/// The peers by the names of their models, alone and behind "PEER/". Requests hold one by
/// shared_ptr, so that a reload leaves those that run alone. Loop thread.
class Peers {
 public:
  /// Takes over what is configured.
  void assign(const std::vector<config::PeerConfig>& peers);

  /// Whose model this is; null: no peer's.
  [[nodiscard]] std::shared_ptr<Peer> find(std::string_view model) const;
  [[nodiscard]] bool empty() const { return by_model_.empty(); }
  /// Names of models, in the order of the configuration, and of the peers that have them.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& models() const {
    return models_;
  }

 private:
  std::map<std::string, std::shared_ptr<Peer>, std::less<>> by_model_{};
  std::vector<std::pair<std::string, std::string>> models_{};
};

}  // namespace heddle::gateway
