#include "rpc/convert.h"

#include <tuple>

#include <gtest/gtest.h>

namespace heddle::rpc {
namespace {

spec::ModelSpec every_field_set() {
  return {.architecture = spec::Architecture::kQwen3,
          .hidden = 1,
          .layers = 2,
          .heads = 3,
          .kv_heads = 4,
          .head_dim = 5,
          .intermediate = 6,
          .vocab = 7,
          .max_position = 8,
          .rms_eps = 0.25,
          .rope_theta = 0.5,
          .rope = {.kind = spec::RopeKind::kYarn,
                   .factor = 2,
                   .low_freq_factor = 3,
                   .high_freq_factor = 5,
                   .beta_fast = 6,
                   .beta_slow = 7,
                   .attention_factor = 8,
                   .mscale = 9,
                   .mscale_all_dim = 10,
                   .truncate = false,
                   .original_max_position = 11},
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .qk_norm = true,
          .tied_embeddings = true,
          .window = {0, 12},
          .stored_dtype = spec::DType::kF16,
          .bos = -1,
          .eos = {13, 14},
          .shard = {.rank = 2, .ranks = 4}};
}

TEST(Convert, KeepsEveryFieldOfAModel) {
  const spec::ModelSpec sent = every_field_set();
  wire::ModelSpec wire;
  to_wire(sent, wire);
  WireCheck check;
  const spec::ModelSpec got = from_wire(wire, check);
  ASSERT_FALSE(check.failure().has_value()) << check.failure()->message;
  const auto dimensions = [](const spec::ModelSpec& m) {
    return std::tuple(m.architecture,
                      m.hidden,
                      m.layers,
                      m.heads,
                      m.kv_heads,
                      m.head_dim,
                      m.intermediate,
                      m.vocab,
                      m.max_position,
                      m.rms_eps,
                      m.rope_theta);
  };
  const auto switches = [](const spec::ModelSpec& m) {
    return std::tuple(m.qkv_bias,
                      m.out_bias,
                      m.mlp_bias,
                      m.qk_norm,
                      m.tied_embeddings,
                      m.window,
                      m.stored_dtype,
                      m.bos,
                      m.eos);
  };
  const auto rope = [](const spec::ModelSpec& m) {
    const spec::RopeScaling& r = m.rope;
    return std::tuple(r.kind,
                      r.factor,
                      r.low_freq_factor,
                      r.high_freq_factor,
                      r.beta_fast,
                      r.beta_slow,
                      r.attention_factor,
                      r.mscale,
                      r.mscale_all_dim,
                      r.truncate,
                      r.original_max_position);
  };
  EXPECT_EQ(dimensions(got), dimensions(sent));
  EXPECT_EQ(switches(got), switches(sent));
  EXPECT_EQ(rope(got), rope(sent));
  EXPECT_EQ(got.shard, sent.shard);
}

TEST(Convert, RefusesAShardThatCannotBe) {
  wire::ModelSpec wire;
  to_wire(every_field_set(), wire);
  wire.set_rank(4);
  WireCheck check;
  EXPECT_EQ(from_wire(wire, check).shard, spec::Shard{});
  ASSERT_TRUE(check.failure().has_value());
  EXPECT_EQ(check.failure()->message, "rank 4 of 4 ranks of a vocabulary of 7");
}

TEST(Convert, KeepsEverySamplingParameter) {
  const spec::SamplingParams sent{
      .temperature = 0.5F,
      .top_p = 0.25F,
      .top_k = 3,
      .min_p = 0.125F,
      .presence_penalty = -1.5F,
      .frequency_penalty = 1.5F,
      .repetition_penalty = 1.25F,
      .logit_bias = {{5, -100.0F}, {6, 2.0F}},
      .seed = ~std::uint64_t{0},
      .choice = 2,
      .max_tokens = 77,
      .ignore_eos = true,
      .stop_tokens = {1, 2},
      .logprobs = 5,
      .grammar = {spec::GrammarKind::kRegex, "a+", spec::Thought::kBegun},
      .pooling = spec::Pooling::kMean};
  wire::SamplingParams wire;
  to_wire(sent, wire);
  WireCheck check;
  const spec::SamplingParams got = from_wire(wire, check);
  ASSERT_FALSE(check.failure().has_value());
  const auto fields = [](const spec::SamplingParams& p) {
    return std::tuple(p.temperature,
                      p.top_p,
                      p.top_k,
                      p.min_p,
                      p.presence_penalty,
                      p.frequency_penalty,
                      p.repetition_penalty,
                      p.logit_bias,
                      p.seed,
                      p.choice,
                      p.max_tokens,
                      p.ignore_eos,
                      p.stop_tokens,
                      p.logprobs,
                      p.grammar,
                      p.pooling);
  };
  EXPECT_EQ(fields(got), fields(sent));
}

TEST(Convert, KeepsUsageByKind) {
  ledger::PoolUsage sent{.total = 9, .free = 2, .version = 11};
  sent.by_kind[0] = {.reserved = 4, .held = 3};
  sent.by_kind[ledger::kLeaseKinds - 1] = {.reserved = 3, .held = 0};
  wire::PoolUsage wire;
  to_wire(sent, wire);
  EXPECT_EQ(wire.leases_size(), 2) << "kinds that nobody holds are left out";
  WireCheck check;
  EXPECT_EQ(from_wire(wire, check), sent);
  EXPECT_FALSE(check.failure().has_value());
}

TEST(Convert, NamesTheFirstThingThatCannotBe) {
  wire::ModelSpec model;
  to_wire(every_field_set(), model);
  model.set_layers(-3);
  model.set_architecture(99);
  WireCheck check;
  (void)from_wire(model, check);
  ASSERT_TRUE(check.failure().has_value());
  EXPECT_EQ(check.failure()->code, Code::kCorrupt);
  EXPECT_EQ(check.failure()->message, "architecture 99; the greatest known is 3");

  wire::Footprint footprint;
  footprint.add_kv()->set_tokens_per_block(0);
  WireCheck of_footprint;
  (void)from_wire(footprint, of_footprint);
  EXPECT_TRUE(of_footprint.failure().has_value()) << "a division by zero otherwise";
}

}  // namespace
}  // namespace heddle::rpc
