#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/time.h"
#include "collective/shared_area.h"
#include "device/device.h"
#include "ops/peer_area.h"

namespace heddle::worker {

/// What a rank on a GPU has of the others before they have met.
struct RankLinks {
  int gpu = 0;                                     ///< This rank's, as the CUDA driver counts.
  std::int64_t rank = 0;                           ///< This one.
  std::vector<Descriptor> sockets{};               ///< Of packets, by rank; its own is none.
  std::shared_ptr<collective::SharedArea> area{};  ///< Of the group.
};

/// A rank's memory that the kernels of the others reach over the GPUs' links, and theirs: by that
/// they exchange data without the host. Ends when no work of this device refers to it; what others
/// still map of it lasts as long as they do. Used by one thread.
class PeerRanks {
 public:
  /// Shows this rank's memory to the others, and maps theirs. All ranks call it. Waits `patience`
  /// for each at most, and tells the others where it has none. kFailedPrecondition where the GPUs
  /// are not linked or the ranks are more than PeerArea::kRanksMax; kUnavailable where another rank
  /// has none, says nothing or is gone; kResourceExhausted. What one finds, others need not find.
  static Result<std::unique_ptr<PeerRanks>> meet(device::Device& device,
                                                 const RankLinks& links,
                                                 Duration patience);

  PeerRanks(const PeerRanks&) = delete;
  PeerRanks& operator=(const PeerRanks&) = delete;

  [[nodiscard]] const ops::PeerArea& area() const { return area_; }

 private:
  PeerRanks() = default;
  Result<void> share(device::Device& device, const RankLinks& links);
  Result<void> take(device::Device& device,
                    const RankLinks& links,
                    std::int64_t rank,
                    Duration patience);

  std::shared_ptr<collective::SharedArea> group_{};
  device::Buffer pinned_{};  ///< The group's memory, of which the device reads a word.
  device::Buffer zeros_{};
  device::SharedBuffer own_{};
  std::vector<device::Buffer> theirs_{};
  ops::PeerArea area_{};
};

}  // namespace heddle::worker
