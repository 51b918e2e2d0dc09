#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/pipe_batch.h"

namespace heddle::engine {

/// The stages of pipelines that an engine has (spec/pipe_stage.h; docs/contracts/pipe.md). Of a
/// leader Engine::run() gives batches (StepOutcome::sent); their sequences are *away*, in no plan,
/// until finish(). Passed by value; used by the engine thread, between steps.
class Pipes {
 public:
  /// A pipeline begins, with its first batch: what there was of one before is forgotten. A leader
  /// has no sequences.
  void join(ModelId model);

  /// Of a follower: the KV of the pipeline's sequences has so many pages of the pool, in place of
  /// those before, and nothing in them. They are its own, cached prefixes among them, until the
  /// model goes. kResourceExhausted, with none, where the pool has too few.
  Result<void> reserve(ModelId model, std::int64_t pages);

  /// Of a shard (spec::shard_of), which has its KV apart likewise: that and what is cached of it
  /// have so many pages of the pool, and no others; at first none. Where it has more and they are
  /// in use it keeps those, cached ones being dropped first. Gives how many it has then.
  /// kResourceExhausted, and nothing has changed, where the pool has too few. Of all ranks that
  /// were told the same each has as many.
  Result<std::int64_t> set_share(ModelId model, std::int64_t pages);

  /// Of a follower: runs a batch through its layers. A sequence that finds too few pages or not the
  /// prefix that the leader found, or that weights will not come for, is refused and forgotten.
  /// kCorrupt, and nothing has run, where the batch does not go on where the last one ended;
  /// otherwise an error means that the device is lost.
  Result<void> run(PipeBatch& batch);

  /// Of the leader: takes a batch that is back, samples, and gives what became of its slices.
  /// Sequences that went meanwhile are left out. StepOutcome::refused are those that a follower has
  /// forgotten: to be preempted, as nothing of them changed here. kCorrupt where no such batch is
  /// away, or its rows are not those that were wanted.
  Result<StepOutcome> finish(const PipeBatch& batch);

  /// KV that moves from the stages to the whole model. Valid as long as the engine.
  [[nodiscard]] Gathers gathers() const;

 private:
  friend class Engine;
  explicit Pipes(Engine::Impl& engine) : engine_(&engine) {}
  Engine::Impl* engine_;
};

}  // namespace heddle::engine
