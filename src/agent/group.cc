#include "agent/group.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "collective/shared_area.h"
#include "rpc/link.h"

#include <fcntl.h>

namespace heddle::agent {

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

Result<std::vector<std::vector<rpc::Descriptor>>> connect_pipe(std::int64_t stages) {
  std::vector<rpc::Descriptor> from_before(static_cast<std::size_t>(stages));
  std::vector<std::vector<rpc::Descriptor>> descriptors(from_before.size());
  std::vector<rpc::Descriptor> to_behind;
  for (std::size_t stage = 0; stage < from_before.size(); ++stage) {
    auto sockets = rpc::socket_pair();
    if (!sockets) {
      return sockets.error();
    }
    to_behind.push_back(std::move(sockets->first));
    from_before[(stage + 1) % from_before.size()] = std::move(sockets->second);
  }
  for (std::size_t stage = 0; stage < descriptors.size(); ++stage) {
    descriptors[stage].push_back(std::move(from_before[stage]));
    descriptors[stage].push_back(std::move(to_behind[stage]));
  }
  return descriptors;
}

rpc::ToWorker join_message(bool pipe, ModelId model, std::int64_t rank, std::int64_t ranks) {
  if (pipe) {
    return rpc::JoinPipe{.model = model, .stage = rank, .stages = ranks};
  }
  return rpc::JoinGroup{.model = model, .rank = rank, .ranks = ranks};
}

}  // namespace heddle::agent
