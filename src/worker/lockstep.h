#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "collective/collective.h"
#include "core/worker_core.h"

namespace heddle::worker {

/// One rank's part in a group of workers that run a model in lockstep, each with a shard of it.
/// What the core of rank 0 wants of its engine is passed on to the others, who do the same in the
/// same order, to sequences of the same names, and find the same: from equal states, by equal
/// commands, with equal sums. After each step all compare what it did. Engine thread.
class Lockstep {
 public:
  /// `group` is the rank's. `followers`: of rank 0, a connected socket for each other rank.
  Lockstep(ModelId model,
           std::unique_ptr<collective::Collective> group,
           std::vector<Descriptor> followers)
      : model_(model), group_(std::move(group)), followers_(std::move(followers)) {}

  [[nodiscard]] ModelId model() const { return model_; }
  [[nodiscard]] collective::Collective& group() { return *group_; }
  [[nodiscard]] bool leads() const { return group_->rank() == 0; }

  /// Of rank 0: the others carry out the same command, if it is one for the engine. kUnavailable
  /// when one of them is gone.
  Result<void> pass_on(const core::WorkerCommand& command);

  /// Waits until all ranks have ended the step. kCorrupt, on all of them, where they did not do the
  /// same or hold equally many pages; kUnavailable when one of them is gone.
  Result<void> compare(const core::StepDone& done);

 private:
  ModelId model_;
  std::unique_ptr<collective::Collective> group_;
  std::vector<Descriptor> followers_;
};

/// Whether a command changes what an engine knows of sequences and their KV.
[[nodiscard]] bool is_for_engine(const core::WorkerCommand& command);

}  // namespace heddle::worker
