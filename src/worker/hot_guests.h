#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "core/messages.h"
#include "core/worker_core.h"
#include "device/device.h"
#include "engine/engine.h"
#include "rpc/messages.h"
#include "weave/counted_host.h"
#include "worker/lent_memory.h"

namespace heddle::worker {

/// Who runs attention over guests of a model, by its weave::JobArea; none: nobody does.
struct GuestHost {
  ModelId model{};
  Descriptor area{};
};

/// Memory of pages that another GPU lends to a model of this one, a descriptor for each.
struct GuestMemory {
  rpc::GuestMemory of{};
  std::vector<Descriptor> descriptors{};
};

/// KV that this worker's models have on pages of other devices, and who runs attention over it
/// (WEAVER; docs/contracts/guests.md). Engine thread, between steps.
class HotGuests {
 public:
  /// `engine`, of `device`, outlives it.
  HotGuests(engine::Engine& engine, device::Device& device) : engine_(engine), device_(device) {}

  /// From the next step on the host runs attention over the model's guests, or nobody does. The
  /// engine knows the model.
  void meet(const GuestHost& host);
  /// The model is gone.
  void forget(ModelId model);

  /// Between GPUs: maps what is lent next. What cannot be is logged, and unable() says so.
  void map(const GuestMemory& memory);
  /// Why the model cannot use pages that it is lent; none: it can. Between GPUs each must be
  /// mapped.
  [[nodiscard]] std::optional<Error> unable(ModelId model, const std::vector<PageId>& pages) const;
  /// Pages that were returned, or never taken, are not mapped any more.
  void unmap(ModelId model, const std::vector<PageId>& pages);
  /// unable() has said that it can.
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
  [[nodiscard]] bool on_gpu() const { return device_.properties().kind == device::Kind::kCuda; }
  Result<std::unique_ptr<weave::CountedHost>> make_client(const Descriptor& area);
  [[nodiscard]] weave::LayerCounts counts() const;

  engine::Engine& engine_;
  device::Device& device_;
  /// Of models that another GPU lends to: nothing else, and no longer than a page is mapped.
  std::map<ModelId, std::unique_ptr<LentMemory>> memory_{};
  std::map<ModelId, std::unique_ptr<weave::CountedHost>> hosts_{};
  weave::LayerCounts past_{};  ///< Of hosts that there were.
};

}  // namespace heddle::worker
