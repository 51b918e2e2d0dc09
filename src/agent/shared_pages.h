#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/messages.h"
#include "rpc/descriptor.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// The memory of pages that GPUs lend to guests, by the descriptors that their workers have shared:
/// for the hot workers, and for later lives of the GPUs' own. Without it here, and mapped by
/// nobody, it is the driver's. One thread.
class SharedPages {
 public:
  struct Message {
    rpc::ToWorker body{};
    std::vector<rpc::Descriptor> descriptors{};
  };

  /// What a GPU's worker is told, which is to share these pages. kResourceExhausted, and nothing
  /// has changed, where this process may not have so many descriptors.
  Result<std::vector<Message>> share(DeviceId host,
                                     ModelId model,
                                     const std::vector<PageId>& pages);
  /// It has shared these. What has gone home meanwhile is let go of. False where the descriptors
  /// are not the pages'.
  [[nodiscard]] bool keep(DeviceId host,
                          const core::GuestsShared& shared,
                          std::vector<rpc::Descriptor> descriptors);
  /// What the hot worker is told, which is to map these pages. `device_pages` is how many the GPU
  /// has. Pages that were not shared are left out.
  [[nodiscard]] std::vector<Message> pass(DeviceId host,
                                          ModelId model,
                                          const std::vector<PageId>& pages,
                                          std::int64_t device_pages) const;
  /// Only these are lent to the model any more.
  void lease(DeviceId host, ModelId model, const std::vector<PageId>& pages);

  /// Pages that are lent, shared or about to be.
  [[nodiscard]] std::size_t size() const;

 private:
  /// By page; none until it was shared.
  using Pages = std::map<PageId, rpc::Descriptor>;
  std::map<std::pair<DeviceId, ModelId>, Pages> pages_{};
};

}  // namespace heddle::agent
