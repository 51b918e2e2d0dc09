#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/thread.h"
#include "base/time.h"
#include "device/device.h"
#include "weave/guest_server.h"
#include "weave/job_area.h"
#include "weave/stream_server.h"
#include "worker/guest_time.h"
#include "worker/lent_memory.h"

namespace heddle::worker {

/// Runs attention over KV that models of other devices have on pages of this one (WEAVER;
/// docs/contracts/guests.md): a thread for each such model. Loop thread.
class GuestHosts {
 public:
  /// Of a part of the host, on its cores. `pages` is where page 0 of the arena is, `context` the
  /// device's pace of a position. `time`, which counts what it takes, outlives it.
  GuestHosts(const std::byte* pages, std::int64_t page_bytes, Duration context, GuestTime& time)
      : pages_(pages), page_bytes_(page_bytes), context_(context), time_(time) {}
  /// Of a GPU, which outlives it, on a stream for each model. Nobody measures the time.
  GuestHosts(device::Device& gpu, GuestTime& time)
      : gpu_(&gpu),
        page_bytes_(static_cast<std::int64_t>(gpu.properties().page_bytes)),
        time_(time) {}
  ~GuestHosts();
  GuestHosts(const GuestHosts&) = delete;
  GuestHosts& operator=(const GuestHosts&) = delete;

  /// Of a GPU: gives pages that it lends to the model memory that the hot worker can map, by one
  /// descriptor each. All, or none and the error.
  Result<std::vector<Descriptor>> share(ModelId model, const std::vector<PageId>& pages);
  /// The same of pages that had some in a former life, by those descriptors.
  Result<void> share_again(ModelId model,
                           const std::vector<PageId>& pages,
                           const std::vector<Descriptor>& descriptors);
  /// Serves the model's guests on `lent` pages through `area`, a weave::JobArea, in place of what
  /// was before. What cannot be served is logged, and the hot worker goes on alone.
  void serve(ModelId model, const Descriptor& area, const std::vector<PageId>& lent);
  /// Only these are lent any more; none: ends it. A GPU has the memory of others no longer.
  void lend(ModelId model, const std::vector<PageId>& lent);

 private:
  struct Served {
    std::shared_ptr<weave::JobArea> area{};
    std::unique_ptr<weave::GuestServer> server{};      ///< Of a part of the host,
    std::unique_ptr<weave::StreamServer> on_stream{};  ///< or of a GPU.
    Thread thread{};                                   ///< Last: it uses the others.
  };
  Result<void> begin(ModelId model, const Descriptor& area, const std::vector<PageId>& lent);
  Result<void> make_server(Served& served, const std::vector<PageId>& lent) const;
  Result<Thread> start(ModelId model, const Served& served);
  void end(ModelId model);
  void unmap(ModelId model, const std::vector<PageId>& kept);
  [[nodiscard]] std::vector<PageId> usable(ModelId model, const std::vector<PageId>& lent) const;
  Result<void> prepare_memory();

  device::Device* gpu_ = nullptr;
  const std::byte* pages_ = nullptr;
  std::int64_t page_bytes_;
  Duration context_{};
  GuestTime& time_;
  std::unique_ptr<LentMemory> memory_{};          ///< Of a GPU, once it was asked to share any;
  std::map<ModelId, std::set<PageId>> mapped_{};  ///< whose they are.
  std::map<ModelId, std::unique_ptr<Served>> served_{};
};

}  // namespace heddle::worker
