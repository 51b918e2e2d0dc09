#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "device/device.h"
#include "worker/peer_wire.h"

namespace heddle::worker {

/// Lends this GPU's link to the host to workers of other GPUs while nothing is loaded here: what
/// their loads ask for is copied into a staging area on this GPU, from where they fetch it over
/// the link between the two (Prism, arXiv 2505.04021, loads weights through all GPUs of a node so).
/// One load at a time; it is sent away at its next piece when a load of this device's own begins.
/// A thread of its own.
class PeerAssist {
 public:
  /// `is_idle`: whether the link is free; called in its own thread. `device` outlives it.
  PeerAssist(device::Device& device, std::function<bool()> is_idle);
  /// Waits for the piece that is being copied.
  ~PeerAssist();
  PeerAssist(const PeerAssist&) = delete;
  PeerAssist& operator=(const PeerAssist&) = delete;

  /// A socket of packets to another worker's PeerLoad. Its end ends what is lent over it.
  void serve(Descriptor socket);

  /// Bytes copied for others. Any thread.
  [[nodiscard]] std::uint64_t peer_assist_bytes() const { return peer_assist_bytes_.load(); }

 private:
  /// A piece of the host's memory to the staging area.
  Result<void> fetch(const PeerRequest& request);
  void run();
  void wake();
  /// Answers one request. False when the socket is of no more use.
  bool answer(const Descriptor& socket);
  bool answer_begin(const Descriptor& socket);
  bool answer_fetch(const Descriptor& socket, const PeerRequest& request);
  bool prepare();

  device::Device& device_;
  std::function<bool()> is_idle_;
  std::atomic<std::uint64_t> peer_assist_bytes_ = 0;
  Descriptor waker_;  ///< An eventfd: there are new sockets, or the end.

  std::mutex mutex_{};
  std::vector<Descriptor> arrived_{};  // Guarded by mutex_.
  bool stopping_ = false;              // Guarded by mutex_.

  // The thread's own.
  std::vector<Descriptor> sockets_{};
  int holder_ = -1;  ///< The socket whose load has the staging memory; -1: none.
  bool unable_ = false;
  std::optional<device::SharedBuffer> staging_{};
  std::unique_ptr<device::Stream> stream_{};
  std::thread thread_;
};

}  // namespace heddle::worker
