#pragma once

#include <utility>
#include <vector>

#include "agent/worker_life.h"
#include "base/log.h"
#include "rpc/link.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// Has the worker of one GPU copy parts of images over its link to the host for that of another
/// (worker::PeerLoad). Where they cannot be connected, that is said, and each loads alone.
inline void lend_link(WorkerLife& of, int of_gpu, WorkerLife& to, int to_gpu) {
  auto sockets = rpc::packet_pair();
  if (!sockets) {
    log::warning("GPUs are not connected", {{"error", sockets.error().message}});
    return;
  }
  std::vector<rpc::Descriptor> peer_assist;
  std::vector<rpc::Descriptor> peer_load;
  peer_assist.push_back(std::move(sockets->first));
  peer_load.push_back(std::move(sockets->second));
  of.send(rpc::MeetPeer{.gpu = to_gpu, .assists = true}, std::move(peer_assist));
  to.send(rpc::MeetPeer{.gpu = of_gpu, .assists = false}, std::move(peer_load));
}

}  // namespace heddle::agent
