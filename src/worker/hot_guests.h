#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "core/messages.h"
#include "core/worker_core.h"
#include "engine/engine.h"
#include "rpc/messages.h"
#include "weave/guest_client.h"

namespace heddle::worker {

/// Who runs attention over guests of a model, by its weave::JobArea; none: nobody does.
struct GuestHost {
  ModelId model{};
  Descriptor area{};
};

/// KV that this worker's models have on pages of other devices, and who runs attention over it
/// (WEAVER; docs/contracts/guests.md). Engine thread, between steps.
class HotGuests {
 public:
  /// `engine` outlives it.
  explicit HotGuests(engine::Engine& engine) : engine_(engine) {}

  /// From the next step on the host runs attention over the model's guests, or nobody does. The
  /// engine knows the model.
  void meet(const GuestHost& host);
  /// The model is gone.
  void forget(ModelId model);

  void take(ModelId model, const std::vector<PageId>& pages);
  [[nodiscard]] core::GuestsReturned give_back(ModelId model, std::int64_t count);
  /// Moves what can be moved, if there is room; gives how many first positions are away then.
  std::int64_t move_out(core::SequenceId sequence, std::int64_t tokens);
  std::int64_t move_home(core::SequenceId sequence);

  /// Pages that hold KV of the model, and first positions of a sequence that are away.
  [[nodiscard]] std::int64_t used_pages(ModelId model) const;
  [[nodiscard]] std::int64_t tokens(core::SequenceId sequence) const;

  /// In layers that hosts answered so far: this side's own part, and the wait for theirs.
  struct Times {
    Duration own{};
    Duration waited{};
  };
  [[nodiscard]] Times times() const;
  /// What was waited for hosts so far, and layers that they answered or did not; all else is 0.
  [[nodiscard]] rpc::WorkerStats stats() const;

 private:
  engine::Engine& engine_;
  std::map<ModelId, std::unique_ptr<weave::GuestClient>> hosts_{};
  rpc::WorkerStats past_{};  ///< Of hosts that there were.
  Duration past_own_{};
};

}  // namespace heddle::worker
