#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "collective/collective.h"
#include "core/worker_core.h"
#include "device/device.h"
#include "ops/peer_area.h"
#include "worker/peer_ranks.h"

namespace heddle::worker {

/// One rank's part in a group of workers that run a model in lockstep, each with a shard of it.
/// What the core of rank 0 wants of its engine for that model is passed on to the others, who do
/// the same in the same order, and find the same: from equal states, by equal commands, with equal
/// sums. Beside it each may run other models. After each step all compare what it did to this one.
/// Engine thread.
class Lockstep {
 public:
  /// `group` is the rank's. `followers`: of rank 0, a connected socket for each other rank.
  /// `links`: where all ranks are on GPUs.
  Lockstep(ModelId model,
           std::unique_ptr<collective::Collective> group,
           std::vector<Descriptor> followers,
           std::optional<RankLinks> links = std::nullopt)
      : model_(model),
        group_(std::move(group)),
        followers_(std::move(followers)),
        links_(std::move(links)) {}

  [[nodiscard]] ModelId model() const { return model_; }
  [[nodiscard]] collective::Collective& group() { return *group_; }
  [[nodiscard]] bool leads() const { return group_->rank() == 0; }

  /// By what the kernels of all ranks exchange without the host, where all of them can; else
  /// nullptr, and the log says why. Where there are links all ranks come here, at the same place
  /// among rank 0's commands, and wait for each other. `device` is this rank's, and outlives this;
  /// `whole`: all of its weights are there, so that no kernel waits for a rank that waits for them.
  [[nodiscard]] const ops::PeerArea* meet_peers(device::Device& device, bool whole);

  /// Of rank 0: the others carry out the same command, as far as it is one for the engine and the
  /// group's model. kUnavailable when one of them is gone.
  Result<void> pass_on(const core::WorkerCommand& command);
  /// Of rank 0: the engine has not taken the sequence, or cannot go on with it.
  void forget(core::SequenceId id) { sequences_.erase(id); }
  /// Of the others: what rank 0 said, in the names that the shard and its sequences have here.
  [[nodiscard]] core::WorkerCommand named_here(core::WorkerCommand command) const;

  /// Waits until all ranks are about to leave the group: each has carried out all that rank 0 said.
  Result<void> part();
  /// Waits until all ranks have ended the step, of which the group's model was a part. kCorrupt, on
  /// all of them, where they did not do the same or hold equally many pages; kUnavailable when one
  /// of them is gone.
  Result<void> compare(const core::StepDone& done);

 private:
  [[nodiscard]] std::optional<core::WorkerCommand> of_group(const core::WorkerCommand& command);
  [[nodiscard]] bool is_of_group(core::SequenceId id) const;
  [[nodiscard]] std::uint64_t digest(const core::StepDone& done) const;

  ModelId model_;
  std::unique_ptr<collective::Collective> group_;
  std::vector<Descriptor> followers_;
  std::set<core::SequenceId> sequences_{};  ///< Of rank 0: the group's.
  std::optional<RankLinks> links_;
  std::unique_ptr<PeerRanks> peers_{};
};

/// Whether a sequence is one of another rank's core, of which the core here does not know.
[[nodiscard]] bool is_followed(core::SequenceId id);

/// Whether a step runs the model.
[[nodiscard]] bool runs(const policy::StepPlan& plan, ModelId model);

/// Whether a command changes what an engine knows of sequences and their KV.
[[nodiscard]] bool is_for_engine(const core::WorkerCommand& command);

}  // namespace heddle::worker
