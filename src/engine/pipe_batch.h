#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "policy/batching.h"

namespace heddle::engine {

using policy::SequenceId;

/// Consecutive tokens of one sequence in a batch that goes through the stages of a pipeline.
struct PipeSlice {
  SequenceId sequence{};      ///< As the leader names it.
  std::int64_t position = 0;  ///< Of its first token.
  std::vector<TokenId> tokens{};
  /// The tokens before `position`, where this is the first of them that the followers hear of: the
  /// leader has found their KV in its prefix cache, and each follower has to find it in its own.
  std::vector<TokenId> prefix{};
  std::string cache_salt{};  ///< As SequenceStart has it, where this is the first of it.
  std::int64_t wanted = 0;   ///< Of how many of its last tokens the leader wants the rows.
};

/// A batch on its way from stage to stage, or back to the leader.
struct PipeBatch {
  ModelId model{};           ///< As the engine that has it names its stage; not sent.
  std::uint64_t number = 0;  ///< Counts the batches of a pipeline, from 1.
  /// Sequences that the leader has done with, or begins anew: they go before the slices run.
  std::vector<SequenceId> dropped{};
  std::vector<PipeSlice> slices{};
  /// Sequences that a stage before could not take, so that their slices are gone from the batch.
  std::vector<SequenceId> refused{};
  /// Hidden states in float32, [rows, hidden]: of all tokens of the slices, in order, before a
  /// stage; of the wanted ones alone behind the last.
  std::vector<float> rows{};
};

}  // namespace heddle::engine
