#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "weave/job_area.h"
#include "weave/step_table.h"

namespace heddle::weave {

/// The host's side of a pair: runs attention over the pages that it lends. One thread serves; any
/// thread may change the lease. What the other side writes is looked at before it is used: where a
/// field cannot be right the area is closed, and nothing is read.
class GuestServer {
 public:
  /// `pages` is where the arena's page 0 is. kInvalidArgument where the geometry cannot be served
  /// here (check_geometry).
  static Result<std::unique_ptr<GuestServer>> create(std::shared_ptr<JobArea> area,
                                                     const std::byte* pages,
                                                     std::int64_t page_bytes,
                                                     std::string_view kernels);

  /// From now on these are lent: blocks on other pages are refused. Waits for a layer that runs.
  void lend(std::span<const PageId> pages);

  /// From now on a layer takes at least so long for each position of its rows, as on what a scale
  /// model stands for.
  void set_pace(Duration position) { pace_ = position; }

  /// Waits for a layer and runs it: looks for `look`, then sleeps. False where none came within
  /// `patience`. kInvalidArgument, naming field and value, where the other side breaks the rules;
  /// kUnavailable where the area is closed. After an error the area is closed.
  Result<bool> serve(Duration look, Duration patience);

  /// Layers so far, and the time that they took.
  [[nodiscard]] std::uint64_t layers() const { return layers_; }
  [[nodiscard]] Duration busy() const { return busy_; }

 private:
  GuestServer(std::shared_ptr<JobArea> area, const std::byte* pages)
      : area_(std::move(area)), pages_(pages) {}
  Result<void> take_step(const JobArea::Job& job);
  void run(const JobArea::Job& job);

  std::shared_ptr<JobArea> area_;
  const std::byte* pages_;
  std::mutex lease_mutex_{};  ///< Held while a layer runs.
  std::set<PageId> lease_{};  ///< Guarded by lease_mutex_.
  std::uint32_t served_ = 0;
  std::uint32_t step_ = 0;  ///< Whose tables these are:
  StepTable table_{};
  std::set<std::int64_t> checked_groups_{};  ///< Of that, with the lease as it is.
  Duration pace_{};
  std::uint64_t layers_ = 0;
  Duration busy_{};
};

}  // namespace heddle::weave
