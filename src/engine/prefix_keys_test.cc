#include "engine/prefix_keys.h"

#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

constexpr SipKey kSecret{1, 2};

std::vector<memory::BlockKey> keys_of(const std::vector<TokenId>& tokens,
                                      std::string_view salt,
                                      std::int64_t block_tokens = 4,
                                      const SipKey& secret = kSecret) {
  std::vector<memory::BlockKey> keys;
  PrefixKeys(secret, salt).extend(keys, tokens, block_tokens);
  return keys;
}

std::vector<TokenId> count_to(std::size_t size) {
  std::vector<TokenId> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(PrefixKeys, NamesFullBlocksOnly) {
  EXPECT_EQ(keys_of(count_to(3), "").size(), 0U);
  EXPECT_EQ(keys_of(count_to(4), "").size(), 1U);
  EXPECT_EQ(keys_of(count_to(11), "").size(), 2U);
}

TEST(PrefixKeys, GoesOnFromTheKeysThatAreThere) {
  const PrefixKeys maker(kSecret, "salt");
  std::vector<memory::BlockKey> keys;
  for (std::size_t size = 1; size <= 40; size += 3) {
    maker.extend(keys, count_to(size), 4);
  }
  EXPECT_EQ(keys, keys_of(count_to(40), "salt"));
}

// A block's key tells apart all that decides its KV: any token up to its end, their order, the
// salt.
TEST(PrefixKeys, DependsOnEveryTokenBeforeItsEndAndOnTheSalt) {
  const std::vector<TokenId> tokens = count_to(16);
  const auto keys = keys_of(tokens, "a");
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    std::vector<TokenId> other = tokens;
    other[at] += 1000;
    const auto others = keys_of(other, "a");
    for (std::size_t block = 0; block < keys.size(); ++block) {
      EXPECT_EQ(others[block] == keys[block], block < at / 4) << at << " " << block;
    }
  }
  std::set<memory::BlockKey> all(keys.begin(), keys.end());
  const auto add = [&all](const std::vector<memory::BlockKey>& more) {
    all.insert(more.begin(), more.end());
  };
  add(keys_of(tokens, ""));
  add(keys_of(tokens, "b"));
  add(keys_of(tokens, "aa"));
  add(keys_of(tokens, "a", 4, {1, 3}));
  add(keys_of({4, 5, 6, 7}, "a"));
  EXPECT_EQ(all.size(), 4U * 5 + 1);
}

}  // namespace
}  // namespace heddle::engine
