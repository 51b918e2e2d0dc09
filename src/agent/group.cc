#include "agent/group.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "collective/shared_area.h"
#include "rpc/link.h"
#include "spec/pipe_stage.h"

#include <fcntl.h>

namespace heddle::agent {
namespace {

Result<std::vector<std::vector<rpc::Descriptor>>> connect_group(std::int64_t ranks) {
  const auto area = collective::SharedArea::create(ranks);
  if (!area) {
    return area.error();
  }
  std::vector<std::vector<rpc::Descriptor>> descriptors(static_cast<std::size_t>(ranks));
  for (std::vector<rpc::Descriptor>& of_rank : descriptors) {
    of_rank.emplace_back(::fcntl((*area)->fd(), F_DUPFD_CLOEXEC, 0));
    if (!of_rank.back()) {
      return Error{Code::kResourceExhausted,
                   std::string("duplicate a group's descriptor: ") + std::strerror(errno)};
    }
  }
  for (std::size_t rank = 1; rank < descriptors.size(); ++rank) {
    auto sockets = rpc::socket_pair();
    if (!sockets) {
      return sockets.error();
    }
    descriptors[0].push_back(std::move(sockets->first));
    descriptors[rank].push_back(std::move(sockets->second));
  }
  return descriptors;
}

/// Of one of the hosts that the command names.
core::GroupHost host_named(const core::ConnectGroup& command, HostId id) {
  const auto found = std::ranges::find(command.hosts, id, &core::GroupHost::id);
  return found == command.hosts.end() ? core::GroupHost{.id = id} : *found;
}

/// From each stage to the one behind it: a pair of sockets, of which the edge has one where only
/// the other stage is here.
Result<GroupEnds> connect_pipe(const core::ConnectGroup& command,
                               const std::function<bool(DeviceId)>& here) {
  const std::size_t stages = command.members.size();
  std::vector<rpc::Descriptor> before(stages);
  std::vector<rpc::Descriptor> behind(stages);
  GroupEnds ends{.members = std::vector<std::vector<rpc::Descriptor>>(stages)};
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::size_t next = (stage + 1) % stages;
    const DeviceId from = command.members[stage].device;
    const DeviceId to = command.members[next].device;
    if (!here(from) && !here(to)) {
      continue;
    }
    auto sockets = rpc::socket_pair();
    if (!sockets) {
      return sockets.error();
    }
    behind[stage] = std::move(sockets->first);
    before[next] = std::move(sockets->second);
    if (!here(from) || !here(to)) {
      const bool begins = here(from);
      ends.edges.push_back({.stage = static_cast<std::int64_t>(stage),
                            .peer = host_named(command, host_of(begins ? to : from)),
                            .begins = begins,
                            .socket = std::move(begins ? before[next] : behind[stage])});
    }
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    if (here(command.members[stage].device)) {
      ends.members[stage].push_back(std::move(before[stage]));
      ends.members[stage].push_back(std::move(behind[stage]));
    }
  }
  return ends;
}

}  // namespace

Result<GroupEnds> connect_members(const core::ConnectGroup& command,
                                  bool pipe,
                                  const std::function<bool(DeviceId)>& here) {
  if (pipe) {
    return connect_pipe(command, here);
  }
  if (!std::ranges::all_of(command.members,
                           [&](const core::GroupMember& member) { return here(member.device); })) {
    return Error{Code::kInvalidArgument,
                 "ranks of a sharded model on several hosts; want all on one"};
  }
  auto members = connect_group(std::ssize(command.members));
  if (!members) {
    return members.error();
  }
  return GroupEnds{.members = std::move(*members)};
}

rpc::ToWorker join_message(const HostModel& model, std::int64_t rank, std::int64_t ranks) {
  if (spec::stages_of(model.spec) > 1) {
    return rpc::JoinPipe{.model = model.id, .stage = rank, .stages = ranks, .shared = model.shares};
  }
  return rpc::JoinGroup{.model = model.id, .rank = rank, .ranks = ranks};
}

}  // namespace heddle::agent
