#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/ids.h"
#include "engine/model_kv.h"
#include "engine/prefix_keys.h"

namespace heddle::engine {

/// What a memory::KvStore has of a model's KV, beside the cache. Passed by value; used as ModelKv
/// is, which outlives it.
class StoredKv {
 public:
  explicit StoredKv(ModelKv& kv) : kv_(&kv) {}

  struct Found {
    std::int64_t tokens = 0;  ///< That a prefix has more with it.
    std::int64_t pages = 0;   ///< On which that lies.
  };
  /// Has come back to the cache what a prefix of `tokens` lacks there, where `worth` says so of it,
  /// so that ModelKv::take_prefix() of the same finds it. What has come; as much as there are pages
  /// for. `sequence` has no blocks.
  Found bring_back(SequenceKv& sequence,
                   const PrefixKeys& keys,
                   std::span<const TokenId> tokens,
                   const std::function<bool(const Found&)>& worth);
  /// What keeping the KV of a token saves, as memory::KvStore has it.
  void set_token_value(double value);
  /// What the model holds is wrong: nothing of it is kept once it is let go of.
  void keep_nothing();

 private:
  template <class Each>
  void for_each_needed(const SequenceKv& sequence, std::int64_t length, const Each& each) const;
  void fetch(const SequenceKv& sequence, std::int64_t length);

  ModelKv* kv_;
};

}  // namespace heddle::engine
