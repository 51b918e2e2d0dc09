#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/siphash.h"
#include "memory/kv_cache.h"

namespace heddle::engine {

/// Names the blocks of a sequence by what they hold: the key of a block is a hash of the key of the
/// block before it and of its own tokens; that of the first begins with the salt. So two blocks
/// have one key only if all tokens up to their ends and their salts are the same.
///
/// The hash is keyed with a secret of this process, and 128 bits wide: nobody can search for two
/// contents with one key without seeing keys, which are told to no one; and among the 2^30 blocks
/// of the largest host chance makes two alike once in 2^69 lives. So tokens are not compared.
class PrefixKeys {
 public:
  /// Sequences with different salts never share a block.
  PrefixKeys(const SipKey& secret, std::string_view salt);

  /// The keys of the first `tokens.size() / block_tokens` blocks of a sequence, from `keys`, which
  /// has those of the first few: appends the rest.
  void extend(std::vector<memory::BlockKey>& keys,
              std::span<const TokenId> tokens,
              std::int64_t block_tokens) const;

 private:
  SipKey secret_;
  memory::BlockKey root_;
};

}  // namespace heddle::engine
