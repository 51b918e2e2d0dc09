#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"
#include "device/device.h"
#include "worker/mapper.h"
#include "worker/peer_wire.h"

namespace heddle::worker {

/// A second way to this GPU for images: over another GPU's link to the host, whose worker's
/// PeerAssist has them copied to a staging area there, and from there over the link between the two
/// GPUs. Two slots of that area are filled and emptied in turns. Takes part in loads as long as the
/// peer has nothing to load itself; without a peer, or a link between the GPUs, they go on without
/// it. A thread of its own.
class PeerLoad {
 public:
  /// Over GPU `peer`, as the driver counts; `socket` of packets leads to its PeerAssist. `device`
  /// and `mapper` outlive it.
  PeerLoad(device::Device& device, Mapper& mapper, int peer, Descriptor socket);
  ~PeerLoad();
  PeerLoad(const PeerLoad&) = delete;
  PeerLoad& operator=(const PeerLoad&) = delete;

  /// The other side is gone, or never was of use. Any thread.
  [[nodiscard]] bool ended() const { return ended_.load(); }

 private:
  using Slots = std::array<std::optional<Mapper::Share>, kPeerSlots>;

  void run(const std::stop_token& stop);
  /// Whether the peer lends its staging area. Errors end the help.
  Result<bool> begin();
  /// Copies until there is nothing to take or the peer is busy.
  Result<void> carry(Slots& slots);
  Result<void> ask(Slots& slots, std::size_t slot);
  void write(const Mapper::Share& share, std::size_t slot);

  device::Device& device_;
  Mapper& mapper_;
  int peer_;
  Descriptor socket_;
  std::unique_ptr<device::Stream> stream_{};
  device::Buffer staging_{};  ///< The peer's.
  std::atomic<bool> ended_ = false;
  std::jthread thread_;
};

}  // namespace heddle::worker
