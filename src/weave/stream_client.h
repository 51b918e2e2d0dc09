#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/time.h"
#include "device/device.h"
#include "ops/guest_attention.h"
#include "weave/counted_host.h"
#include "weave/job_area.h"
#include "weave/watch.h"

namespace heddle::weave {

/// The hot side of a pair of GPUs. The host is told of a step once; layer by layer the two streams
/// meet by the area's flags, and no thread has a part in it. A stream whose host does not answer is
/// let go. Used by the thread that enqueues, a step after the other; outlives the steps.
class StreamClient final : public CountedHost {
 public:
  struct Options {
    Duration patience = std::chrono::milliseconds(100);  ///< With one layer.
  };

  /// `device` is the hot one, which comes to reach the area, and outlives the client.
  /// kResourceExhausted, or kUnavailable where there is no thread left.
  static Result<std::unique_ptr<StreamClient>> create(std::shared_ptr<JobArea> area,
                                                      device::Device& device,
                                                      Options options);
  ~StreamClient() override = default;

  /// A step of more sequences or blocks than the area has room for is not posted, nor is one while
  /// the host is at a step that it was not waited for: nobody answers.
  void begin_step(std::span<const ops::GuestSequence> sequences) override;
  [[nodiscard]] std::optional<ops::GuestMeeting> meet(std::int64_t layer,
                                                      std::int64_t rows) override;
  /// Only streams of CPUs post so.
  void post(const ops::GuestRows& /*rows*/) override {}
  [[nodiscard]] bool await(const ops::GuestRows& /*rows*/) override { return false; }

  /// Steps that the host was asked for, and those of them whose streams were let go.
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  [[nodiscard]] std::uint64_t let_go_of() const;
  /// Of a step that was let go, what the host had not answered by then is unanswered.
  [[nodiscard]] LayerCounts counts() const override;

 private:
  StreamClient(std::shared_ptr<JobArea> area, device::Buffer pinned, Options options)
      : area_(std::move(area)),
        pinned_(std::move(pinned)),
        options_(options),
        watch_(std::min(options.patience / 8, kEvery), [this] { return look(); }) {}
  bool look();
  /// How often it is looked whether the host has gone, at least.
  static constexpr Duration kEvery = std::chrono::milliseconds(20);

  std::shared_ptr<JobArea> area_;
  device::Buffer pinned_;
  Options options_;
  std::uint32_t step_ = 0;    ///< Also the area's ticket of the step.
  std::uint32_t ticket_ = 0;  ///< Of the layer that was posted last, or would have been.
  bool posts_ = false;        ///< This step.
  std::uint64_t asked_ = 0;

  mutable std::mutex mutex_{};  ///< Of what follows, which the watch looks after.
  std::uint32_t asked_step_ = 0;
  std::uint32_t asked_layers_ = 0;
  std::uint32_t last_ = 0;  ///< The ticket of that step's last layer.
  bool lost_ = false;       ///< The host has not answered, and is asked nothing until it has.
  std::uint64_t let_go_of_ = 0;
  std::uint64_t layers_ = 0;      ///< Of all steps with guests,
  std::uint64_t unanswered_ = 0;  ///< and those that nobody answered.
  Instant since_{};               ///< Since then nothing has changed of what the stream waits for.
  std::uint32_t posted_ = 0;
  std::uint32_t served_ = 0;
  Watch watch_;  ///< Last: it uses the others.
};

}  // namespace heddle::weave
