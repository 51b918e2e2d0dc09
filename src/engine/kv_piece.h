#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "policy/batching.h"

namespace heddle::engine {

using policy::SequenceId;

/// KV of consecutive positions of a sequence, on its way from the stages of a pipeline to the whole
/// model: each stage behind the first adds its layers, and the leader puts all in.
struct KvPiece {
  ModelId model{};           ///< As the engine that has it names its stage; not sent.
  std::uint64_t number = 0;  ///< Counts the pieces that an engine has asked for, from 1.
  SequenceId sequence{};     ///< As the leader names it.
  std::int64_t begin = 0;    ///< Positions [begin, end).
  std::int64_t end = 0;
  /// Of each layer behind the first stage's so far: the first of the positions that it still has.
  /// Layers with a window have dropped what nobody attends to.
  std::vector<std::int64_t> from{};
  bool refused = false;  ///< A stage has forgotten the sequence.
  /// Of each of those layers positions [from, end), as ModelKv::copy_out has them.
  std::string bytes{};
};

}  // namespace heddle::engine
