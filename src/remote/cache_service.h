#pragma once

#include <cstdint>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "agent/fetch_link.h"
#include "base/time.h"
#include "net/host_link.h"
#include "store/model_source.h"

namespace heddle::remote {

struct CacheServiceOptions {
  std::size_t queued_full = std::size_t{2} << 20U;  ///< With so many bytes unsent nothing is read.
  /// For so long an ask waits while fetches of this host go before; then all of its link are
  /// refused.
  Duration patience = std::chrono::seconds(2);
  /// For so long a model that nobody asks for any more stays held in the cache.
  Duration held = std::chrono::seconds(10);
};

/// Gives agents of other hosts what they ask for of this host's caches. One ask of a link after the
/// other, and none while the other end takes too little. What is given shares the host's link to
/// the network with what it fetches itself; its own fetches that are due go first. Loop thread;
/// files are read beside it.
class CacheService {
 public:
  /// @param link  As this host's fetches share it.
  CacheService(boost::asio::any_io_executor executor,
               store::ModelPlaces places,
               std::shared_ptr<agent::FetchLink> link,
               const CacheServiceOptions& options = {});
  /// Ends all links, and waits for what is being read.
  ~CacheService();
  CacheService(const CacheService&) = delete;
  CacheService& operator=(const CacheService&) = delete;

  /// Takes an agent's link: net::Listener's on_peer.
  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer);
  /// What was given so far.
  [[nodiscard]] std::uint64_t given_bytes() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
