#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace heddle::engine {

/// About so many bytes of KV go at once, as each part waits for the end of a step on both sides:
/// one position at least.
inline constexpr std::size_t kKvPartBytes = std::size_t{4} << 20U;

/// KV that an engine asks others for: of tokens that somebody has computed there.
struct KvWanted {
  ModelId model{};  ///< As the engine that has it names the model, or the stage of one.
  std::string cache_salt{};
  std::vector<TokenId> tokens{};
  std::int64_t begin = 0;  ///< Positions [begin, end) of them.
  std::int64_t end = 0;
};

/// What one engine has of it: consecutive layers of positions [begin, end).
struct KvPart {
  std::int64_t prefix = 0;  ///< So many first tokens are cached there.
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< At most what was asked for; `begin` where there is nothing.
  std::int64_t first_layer = 0;
  /// Of each layer the first of the positions that it still has. Layers with a window have dropped
  /// what nobody attends to, and layers with a state have none: `end`.
  std::vector<std::int64_t> from{};
  /// Of each layer positions [from, end), as copy_out() has them. Then, where layers keep states, a
  /// part of those behind the whole prefix: of s bytes [s begin / prefix, s end / prefix).
  std::string bytes{};
};

/// How far the KV of a sequence has come from others.
struct KvHave {
  std::int64_t computed = 0;  ///< The sequence goes on from there.
  bool done = false;          ///< No more is to be had.
};

/// KV that goes from one engine's cached prefixes to sequences of another (docs/contracts/kv.md).
/// Who gives holds nothing for it: what is dropped between two parts is gone. Passed by value; used
/// by the engine thread, between steps, as long as the engine lives.
class KvShares {
 public:
  explicit KvShares(Engine& engine);

  /// What is cached of it. An error means that the device is lost.
  Result<KvPart> give(const KvWanted& wanted);

  /// What a sequence lacks next, of its own model, that has computed nothing here beside a prefix
  /// that it found. nullopt: nothing that others could have, or prefixes are not cached.
  std::optional<KvWanted> wanted(SequenceId sequence);
  /// Puts in what came of that. The parts have all layers together; where they do not, or have
  /// other positions, or where pages lack, the sequence goes on with what it has. An error as of
  /// give().
  Result<KvHave> put(SequenceId sequence, std::vector<KvPart> parts);
  /// It goes on with what it has, which it gives.
  std::int64_t end(SequenceId sequence);

 private:
  Engine::Impl* engine_;
};

}  // namespace heddle::engine
