#pragma once

#include <cstddef>

#include "net/connector.h"
#include "remote/caller.h"

namespace heddle::remote {

struct StreamOptions {
  std::size_t queued_most = kQueuedMost;  ///< For the other end of a link; then it is ended.
  /// Sockets are not read while so much waits for a link.
  std::size_t queued_full = std::size_t{1} << 20U;
  std::size_t streams_most = 8192;    ///< Of one gateway at one host.
  net::ConnectorOptions connector{};  ///< Of a gateway's links.
};

}  // namespace heddle::remote
