#include "spec/shard.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/memory_needs.h"

namespace heddle::spec {
namespace {

ModelSpec model() {
  ModelSpec model;
  model.hidden = 48;
  model.layers = 3;
  model.heads = 12;
  model.kv_heads = 4;
  model.head_dim = 8;
  model.intermediate = 40;
  model.vocab = 101;
  model.max_position = 64;
  model.window.assign(3, 0);
  return model;
}

TEST(Shard, DividesHeadsAndTheMlpAndNothingElse) {
  const ModelSpec whole = model();
  const ModelSpec part = shard_of(whole, {.rank = 1, .ranks = 4});
  EXPECT_EQ(part.heads, 3);
  EXPECT_EQ(part.kv_heads, 1);
  EXPECT_EQ(part.intermediate, 10);
  EXPECT_EQ(part.hidden, 48);
  EXPECT_EQ(part.vocab, 101);
  EXPECT_EQ(part.shard, (Shard{.rank = 1, .ranks = 4}));
  EXPECT_EQ(shard_of(whole, {}).heads, 12);
}

TEST(Shard, DividesExpertsByTheirWidth) {
  ModelSpec whole = model();
  whole.intermediate = 0;
  whole.experts = {.count = 3, .active = 2, .intermediate = 8};
  const ModelSpec part = shard_of(whole, {.rank = 1, .ranks = 4});
  EXPECT_EQ(part.experts.count, 3);
  EXPECT_EQ(part.experts.intermediate, 2);
  whole.experts.intermediate = 6;
  EXPECT_THAT(divides(whole, 4).error().message,
              testing::HasSubstr("4 key-value heads and experts of 6 must be multiples"));
  whole.intermediate = 40;
  EXPECT_THAT(divides(whole, 4).error().message,
              testing::HasSubstr("MLP of 40 and experts of 6 must"));
}

TEST(Shard, RangesOfTheVocabularyMakeUpTheWhole) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    const ModelSpec part = shard_of(model(), {.rank = 0, .ranks = ranks});
    std::int64_t end = 0;
    std::int64_t least = part.vocab;
    std::int64_t most = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const VocabRange range = vocab_range(part, rank);
      EXPECT_EQ(range.begin, end);
      end = range.end;
      least = std::min(least, range.size());
      most = std::max(most, range.size());
    }
    EXPECT_EQ(end, part.vocab);
    EXPECT_LE(most - least, 1);
  }
}

TEST(Shard, SaysWhatDoesNotDivideAndWhatWould) {
  const Result<void> three = divides(model(), 3);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, Code::kInvalidArgument);
  EXPECT_EQ(three.error().message,
            "divide a model into 3 shards: its 12 attention heads, 4 key-value heads and MLP of 40 "
            "must be multiples of that; possible here: 1, 2 or 4");
  EXPECT_TRUE(divides(model(), 4));
  EXPECT_FALSE(divides(model(), 0));
  EXPECT_FALSE(divides(model(), -2));
  ModelSpec odd = model();
  odd.kv_heads = 1;
  EXPECT_TRUE(divides(odd, 2).error().message.ends_with("possible here: only 1"));
  ModelSpec few_tokens = model();
  few_tokens.vocab = 3;
  EXPECT_FALSE(divides(few_tokens, 4));
}

TEST(Shard, EncodersAreWhole) {
  ModelSpec encoder = model();
  encoder.encoder = {.positions = 16, .types = 1};
  const auto divided = divides(encoder, 2);
  ASSERT_FALSE(divided);
  EXPECT_NE(divided.error().message.find("only whole models are encoders"), std::string::npos);
}

TEST(Shard, NeedsItsShareOfTheMemory) {
  ModelSpec whole = model();
  whole.qkv_bias = whole.out_bias = whole.mlp_bias = whole.qk_norm = true;
  for (const bool tied : {false, true}) {
    whole.tied_embeddings = tied;
    std::int64_t parameters = 0;
    std::uint64_t kv = 0;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const ModelSpec part = shard_of(whole, {.rank = rank, .ranks = 4});
      parameters += parameter_count(part);
      kv += kv_bytes(part, DType::kBf16, 10);
    }
    // Each rank has the norms; one has the biases behind the sums.
    const std::int64_t norms = whole.layers * 2 * (whole.hidden + whole.head_dim) + whole.hidden;
    EXPECT_EQ(parameters, parameter_count(whole) + 3 * norms);
    EXPECT_EQ(kv, kv_bytes(whole, DType::kBf16, 10));
  }
}

}  // namespace
}  // namespace heddle::spec
