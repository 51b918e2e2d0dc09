#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/kv_piece.h"

namespace heddle::engine {

/// Pieces of one sequence's KV that are on their way at most.
inline constexpr std::size_t kGatherPieces = 4;

/// How far the KV of a sequence has come to the whole model.
struct GatherState {
  std::int64_t asked = 0;         ///< First positions that were asked for, or found there.
  std::int64_t there = 0;         ///< Those of them that have arrived.
  std::int64_t usable = 0;        ///< What a sequence with these tokens would find as its prefix.
  std::int64_t block_tokens = 1;  ///< Prefixes end at multiples of this.
  bool failed = false;            ///< No more of it can be had.
};

/// KV that moves from the stages of a pipeline into the prefix cache of the whole model, which is
/// with the leader (docs/contracts/pipe.md). What has come is held until end(). Passed by value;
/// used by the engine thread, between steps.
class Gathers {
 public:
  /// Of the leader: asks for the computed first `tokens` positions of a sequence, as far as nobody
  /// has and EngineOptions::gather_bytes allow at once. Appends to `pieces` what the next stage is
  /// to have. GatherState::failed where pages lack, prefixes are not cached, the layouts of the two
  /// models do not agree, or the sequence has more state than tokens and KV. An error means that
  /// the device is lost.
  Result<GatherState> ask(SequenceId sequence,
                          ModelId into,
                          std::int64_t tokens,
                          std::vector<KvPiece>& pieces);
  /// Of a follower: adds what its layers have. Refuses what it does not have any more. An error as
  /// of ask().
  Result<void> add(KvPiece& piece);
  /// Of the leader: puts in what is back. nullopt: it was for nobody any more. kCorrupt where it is
  /// not what was asked for; other errors as of ask().
  Result<std::optional<GatherState>> put(const KvPiece& piece);
  /// What has come of the sequence is a cached prefix like any other from now on. Ignored where
  /// nothing was asked for.
  void end(SequenceId sequence);

 private:
  friend class Pipes;
  explicit Gathers(Engine::Impl& engine) : engine_(&engine) {}
  Engine::Impl* engine_;
};

}  // namespace heddle::engine
