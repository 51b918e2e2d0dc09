#include "worker/peer_ranks.h"

#include <string>
#include <utility>

#include "worker/peer_wire.h"

namespace heddle::worker {

/// Makes this rank's memory, empty of what was there.
Result<void> PeerRanks::share(device::Device& device, const RankLinks& links) {
  group_ = links.area;
  auto pinned = device.pin(group_->memory().data(), group_->memory().size());
  if (!pinned) {
    return pinned.error();
  }
  pinned_ = std::move(*pinned);
  auto own = device.allocate_shared(ops::PeerArea::kBytes);
  if (!own) {
    return own.error();
  }
  own_ = std::move(*own);
  auto zeros = device.allocate(device::Place::kHost, ops::PeerArea::kZeroBytes);
  if (!zeros) {
    return zeros.error();
  }
  zeros_ = std::move(*zeros);
  auto stream = device.create_stream();
  if (!stream) {
    return stream.error();
  }
  (*stream)->copy(own_.buffer.data(), zeros_.data(), zeros_.bytes());
  if (auto cleared = (*stream)->synchronize(); !cleared) {
    return cleared;
  }
  area_.rank = links.rank;
  area_.ranks = std::ssize(links.sockets);
  area_.abandoned = group_->barrier().word();
  area_.memory[static_cast<std::size_t>(links.rank)] = own_.buffer.data();
  return {};
}

/// Maps the memory of another rank.
Result<void> PeerRanks::take(device::Device& device,
                             const RankLinks& links,
                             std::int64_t rank,
                             Duration patience) {
  const auto at = static_cast<std::size_t>(rank);
  const std::string other = "rank " + std::to_string(rank);
  Descriptor beside;
  const auto memory = receive_memory(links.sockets[at], patience, beside);
  if (!memory) {
    return Error{memory.error().code, other + ": " + memory.error().message};
  }
  if (memory->bytes < ops::PeerArea::kBytes) {
    return Error{Code::kUnavailable, other + " has no memory to share"};
  }
  if (!device.is_linked_to(memory->gpu)) {
    return Error{Code::kFailedPrecondition,
                 "GPU " + std::to_string(links.gpu) + " has no link to GPU " +
                     std::to_string(memory->gpu) + " of " + other};
  }
  auto attached = device.attach_shared(beside, memory->bytes);
  if (!attached) {
    return attached.error();
  }
  area_.memory[at] = attached->data();
  theirs_.push_back(std::move(*attached));
  return {};
}

Result<std::unique_ptr<PeerRanks>> PeerRanks::meet(device::Device& device,
                                                   const RankLinks& links,
                                                   Duration patience) {
  std::unique_ptr<PeerRanks> peers(new PeerRanks);
  const std::int64_t ranks = std::ssize(links.sockets);
  Result<void> done =
      ranks > static_cast<std::int64_t>(ops::PeerArea::kRanksMax)
          ? Result<void>(Error{Code::kFailedPrecondition,
                               std::to_string(ranks) + " ranks, and at most " +
                                   std::to_string(ops::PeerArea::kRanksMax) + " exchange by links"})
          : peers->share(device, links);
  const RankMemory own{.gpu = links.gpu, .bytes = done ? peers->own_.buffer.bytes() : 0};
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (rank == links.rank) {
      continue;
    }
    const Result<void> sent = send_memory(links.sockets[static_cast<std::size_t>(rank)],
                                          own,
                                          done ? &peers->own_.descriptor : nullptr);
    done = done ? sent : done;
  }
  for (std::int64_t rank = 0; rank < ranks && done; ++rank) {
    if (rank != links.rank) {
      done = peers->take(device, links, rank, patience);
    }
  }
  if (!done) {
    return done.error();
  }
  return peers;
}

}  // namespace heddle::worker
