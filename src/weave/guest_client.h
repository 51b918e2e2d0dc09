#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/time.h"
#include "ops/guest_attention.h"
#include "weave/counted_host.h"
#include "weave/job_area.h"

namespace heddle::weave {

/// The hot side of a pair: has a host run attention over guests through a JobArea. Used by the
/// thread of the hot engine's stream.
class GuestClient final : public CountedHost {
 public:
  struct Options {
    Duration look = std::chrono::microseconds(200);      ///< Before it sleeps.
    Duration patience = std::chrono::milliseconds(100);  ///< With one layer.
  };

  GuestClient(std::shared_ptr<JobArea> area, Options options)
      : area_(std::move(area)), options_(options) {}

  /// A step of more sequences or blocks than the area has room for is not posted: nobody answers.
  void begin_step(std::span<const ops::GuestSequence> sequences) override;
  void post(const ops::GuestRows& rows) override;
  [[nodiscard]] bool await(const ops::GuestRows& rows) override;

  [[nodiscard]] LayerCounts counts() const override { return counts_; }

 private:
  std::shared_ptr<JobArea> area_;
  Options options_;
  std::uint32_t ticket_ = 0;
  std::uint32_t step_ = 0;
  bool fits_ = false;    ///< The step does.
  bool posted_ = false;  ///< The layer was.
  bool lost_ = false;    ///< The host has not answered, and is asked nothing until it has.
  LayerCounts counts_{};
  Instant posted_at_{};
};

}  // namespace heddle::weave
