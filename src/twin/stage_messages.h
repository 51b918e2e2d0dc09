#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "core/worker_core.h"
#include "twin/prefix_marks.h"

/// What the stages of a pipeline say to each other, each to the one behind it and the last to the
/// leader, as far as it decides anything: rpc::ToStage has all of it.
namespace heddle::twin {

/// A follower has its pages.
struct StageShare {
  std::int64_t stage = 0;
  core::PipeShare share{};
};

/// Consecutive tokens of one sequence in a batch.
struct StageSlice {
  core::SequenceId sequence{};
  std::uint64_t life = 0;     ///< Of the sequence at the leader: another one since it began anew.
  std::int64_t position = 0;  ///< Of its first token.
  std::int64_t tokens = 0;
  bool samples = false;  ///< Its last token is followed by one that is sampled.
  PrefixMarks marks{};   ///< Of all its tokens, where prefixes are found.
};

struct StageBatch {
  std::uint64_t number = 0;
  std::vector<core::SequenceId> dropped{};
  std::vector<StageSlice> slices{};
  std::vector<core::SequenceId> refused{};
};

/// KV of positions of a sequence, on its way to the whole model.
struct StagePiece {
  std::uint64_t number = 0;
  core::SequenceId sequence{};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool refused = false;
};

using StageMessage = std::variant<StageShare, StageBatch, StagePiece>;

}  // namespace heddle::twin
