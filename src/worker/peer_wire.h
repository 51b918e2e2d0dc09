#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace heddle::worker {

// What PeerLoad and PeerAssist say to each other, and PeerRanks to each other: one packet each over
// a Unix socket of packets (SOCK_SEQPACKET) between two workers of this program on this host.

/// A peer's staging memory is divided into so many slots, which are filled and emptied in turns.
constexpr std::size_t kPeerSlots = 2;
/// Large enough (0.2 ms at 50 GB/s) that a packet each way costs little beside it, small enough
/// that a peer is soon free for loads of its own.
constexpr std::uint64_t kPeerSlotBytes = std::uint64_t{8} << 20U;

enum class PeerAsk : std::uint32_t {
  kBegin,  ///< May this load have the staging memory? kGranted or kBusy.
  kFetch,  ///< Copy `pieces`, one after the other, to the slot. kFetched or kBusy.
  kEnd,    ///< The staging memory is not used any more. No answer.
};

/// Part of a page of the host.
struct HostPiece {
  PageId page{};
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const HostPiece&, const HostPiece&) = default;
};

struct PeerRequest {
  PeerAsk ask = PeerAsk::kBegin;
  std::uint32_t slot = 0;
  std::vector<HostPiece> pieces{};
};

enum class PeerAnswer : std::uint32_t {
  kGranted,  ///< The staging memory goes beside it.
  kBusy,     ///< The peer's link is its own now, or another's; what was asked for is not done.
  kFetched,
};

struct PeerReply {
  PeerAnswer answer = PeerAnswer::kBusy;
  std::uint32_t slot = 0;
  std::uint64_t bytes = 0;  ///< Of the staging memory.
};

/// kUnavailable when the other side is gone; then also received nothing. A packet that is none of
/// these is kCorrupt. `wait`: how long to wait for one at most, which is kUnavailable, too.
Result<void> send_request(const Descriptor& socket, const PeerRequest& request);
Result<PeerRequest> receive_request(const Descriptor& socket);
Result<void> send_reply(const Descriptor& socket,
                        const PeerReply& reply,
                        const Descriptor* beside = nullptr);
/// `beside`: takes the descriptor that came with it, if one did.
Result<PeerReply> receive_reply(const Descriptor& socket, Duration wait, Descriptor& beside);

/// What PeerRanks says to each other rank: the memory beside it.
struct RankMemory {
  int gpu = 0;              ///< As the CUDA driver counts.
  std::uint64_t bytes = 0;  ///< 0: there is none, and nothing beside it.
};

/// Errors as of the above; a memory without its descriptor is kCorrupt, too.
Result<void> send_memory(const Descriptor& socket,
                         const RankMemory& memory,
                         const Descriptor* beside);
Result<RankMemory> receive_memory(const Descriptor& socket, Duration wait, Descriptor& beside);

}  // namespace heddle::worker
