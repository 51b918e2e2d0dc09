#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/time.h"
#include "ops/guest_attention.h"
#include "weave/job_area.h"

namespace heddle::weave {

/// The hot side of a pair: has a host run attention over guests through a JobArea. Used by the
/// thread of the hot engine's stream.
class GuestClient final : public ops::AttentionHost {
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

  /// Layers that nobody answered, or that were not posted, so far.
  [[nodiscard]] std::uint64_t unanswered() const { return unanswered_; }
  /// Layers that were answered so far, and the time that this side waited for them.
  [[nodiscard]] std::uint64_t answered() const { return answered_; }
  [[nodiscard]] Duration waited() const { return waited_; }
  /// Time from posting those layers to waiting for them, in which this side does its own part.
  [[nodiscard]] Duration own() const { return own_; }

 private:
  std::shared_ptr<JobArea> area_;
  Options options_;
  std::uint32_t ticket_ = 0;
  std::uint32_t step_ = 0;
  bool fits_ = false;    ///< The step does.
  bool posted_ = false;  ///< The layer was.
  bool lost_ = false;    ///< The host has not answered, and is asked nothing until it has.
  std::uint64_t unanswered_ = 0;
  std::uint64_t answered_ = 0;
  Duration waited_{};
  Duration own_{};
  Instant posted_at_{};
};

}  // namespace heddle::weave
