#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/thread.h"
#include "base/time.h"
#include "weave/guest_server.h"
#include "weave/job_area.h"
#include "worker/guest_time.h"

namespace heddle::worker {

/// Runs attention over KV that models of other devices have on pages of this one (WEAVER;
/// docs/contracts/guests.md): a thread for each such model, on this device's cores. Loop thread.
class GuestHosts {
 public:
  /// `pages` is where page 0 of the arena is, `context` the device's pace of a position. `time`,
  /// which counts what it takes, outlives it.
  GuestHosts(const std::byte* pages, std::int64_t page_bytes, Duration context, GuestTime& time)
      : pages_(pages), page_bytes_(page_bytes), context_(context), time_(time) {}
  ~GuestHosts();
  GuestHosts(const GuestHosts&) = delete;
  GuestHosts& operator=(const GuestHosts&) = delete;

  /// Serves the model's guests on `lent` pages through `area`, a weave::JobArea, in place of what
  /// was before. What cannot be served is logged, and the hot worker goes on alone.
  void serve(ModelId model, const Descriptor& area, const std::vector<PageId>& lent);
  /// Only these are lent any more; none: ends it.
  void lend(ModelId model, const std::vector<PageId>& lent);

 private:
  struct Served {
    std::shared_ptr<weave::JobArea> area{};
    std::unique_ptr<weave::GuestServer> server{};
    Thread thread{};  ///< Last: it uses the others.
  };
  void end(ModelId model);

  const std::byte* pages_;
  std::int64_t page_bytes_;
  Duration context_;
  GuestTime& time_;
  std::map<ModelId, std::unique_ptr<Served>> served_{};
};

}  // namespace heddle::worker
