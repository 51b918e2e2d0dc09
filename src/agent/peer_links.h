#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "agent/worker_life.h"
#include "base/log.h"
#include "core/agent_core.h"
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

/// Gives the workers of a group's ranks a socket to each other where all are on GPUs
/// (worker::PeerRanks), before they join the group: all of them, or none, where that is said and
/// they exchange through the host. `workers` are by device, each with its life and setup.
template <class Workers>
void connect_ranks(std::span<const core::GroupMember> members, const Workers& workers) {
  struct Meeting {
    std::size_t of = 0;
    std::size_t with = 0;
    rpc::Descriptor socket{};
  };
  if (!std::ranges::all_of(members, [&](const core::GroupMember& member) {
        return workers.at(member.device).setup->gpu.has_value();
      })) {
    return;
  }
  std::vector<Meeting> meetings;
  for (std::size_t first = 0; first < members.size(); ++first) {
    for (std::size_t second = first + 1; second < members.size(); ++second) {
      auto sockets = rpc::packet_pair();
      if (!sockets) {
        log::warning("ranks are not connected", {{"error", sockets.error().message}});
        return;
      }
      meetings.push_back({.of = first, .with = second, .socket = std::move(sockets->first)});
      meetings.push_back({.of = second, .with = first, .socket = std::move(sockets->second)});
    }
  }
  for (Meeting& meeting : meetings) {
    const core::GroupMember& member = members[meeting.of];
    std::vector<rpc::Descriptor> beside;
    beside.push_back(std::move(meeting.socket));
    workers.at(member.device)
        .life->send(
            rpc::MeetRank{.model = member.model, .rank = static_cast<std::int64_t>(meeting.with)},
            std::move(beside));
  }
}

}  // namespace heddle::agent
