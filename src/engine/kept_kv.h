#pragma once

#include <cstdint>

#include "base/ids.h"
#include "engine/engine.h"
#include "memory/kv_store.h"

namespace heddle::engine {

/// What is kept beside the cached prefixes, since the engine began.
struct KeptCounts {
  std::int64_t pages = 0;  ///< For it.
  std::int64_t held = 0;   ///< Of these, those that have some.
  memory::KvStoreCounts store{};
  std::uint64_t declined_tokens = 0;  ///< Found, and computed again as that was quicker.
};

/// KV that an engine keeps of models that have left, and of what others' KV displaced
/// (docs/contracts/kv.md). Engine::take_prefix() has it come back. Passed by value; used by the
/// engine thread, as long as the engine lives.
class KeptKv {
 public:
  explicit KeptKv(const Engine& engine);

  /// What is kept of this model's KV is wrong, and so is what there will be until it is removed.
  void forget(ModelId id);
  [[nodiscard]] KeptCounts counts() const;

 private:
  Engine::Impl* engine_;
};

}  // namespace heddle::engine
