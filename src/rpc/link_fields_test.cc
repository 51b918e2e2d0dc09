#include "rpc/link_fields.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/wire.h"

namespace heddle::rpc {
namespace {

using testing::EndsWith;

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
          .rope = {.kind = spec::RopeKind::kLongRope,
                   .factor = 2,
                   .low_freq_factor = 3,
                   .high_freq_factor = 5,
                   .beta_fast = 6,
                   .beta_slow = 7,
                   .attention_factor = 8,
                   .mscale = 9,
                   .mscale_all_dim = 10,
                   .truncate = false,
                   .original_max_position = 11,
                   .factors = std::vector(11, 1.5),
                   .short_factors = {2.5}},
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .qk_norm = true,
          .qk_norm_whole = true,
          .tied_embeddings = true,
          .window = {0, 12},
          .stored_dtype = spec::DType::kF16,
          .bos = -1,
          .eos = {13, 14},
          .experts = {.count = 9,
                      .active = 8,
                      .intermediate = 7,
                      .normalised = true,
                      .biased = true,
                      .gate_limit = 6,
                      .gate_gain = 5,
                      .slots = 4},
          .formats = {spec::DType::kQ6K, spec::DType::kBf16, spec::DType::kMxfp4},
          .activation = spec::Activation::kGeluTanh,
          .norms = spec::Norms::kAround,
          .norm_less_one = true,
          .scales = {.embedding = 15,
                     .attention = 16,
                     .residual = 17,
                     .logits = 18,
                     .attention_cap = 19,
                     .logit_cap = 20},
          .layer_rope = {spec::LayerRope::kNone, spec::LayerRope::kLocal},
          .local_theta = 21,
          .rotary_dim = 22,
          .attention_gate = true,
          .sinks = true,
          .linear = {.key_heads = 2,
                     .value_heads = 4,
                     .key_dim = 25,
                     .value_dim = 26,
                     .kernel = 27,
                     .tiled = true},
          .mixer = {spec::Mixer::kDeltaRule, spec::Mixer::kAttention},
          .encoder = {.positions = 28, .first_position = 29, .types = 30, .scores = true},
          .kv = spec::KvType::kI8,
          .shard = {.rank = 2, .ranks = 4},
          .stage = {.index = 1, .ends = {1, 2}}};
}

template <class T>
std::string error_of(const T& sent) {
  const Result<T> read = wire::decode<T>(wire::encode(sent));
  return read ? "" : read.error().message;
}

TEST(LinkFields, KeepsEveryFieldOfAModel) {
  spec::ModelSpec sent = every_field_set();
  sent.linear.gates_apart = true;
  sent.encoder.bare = true;
  const Result<spec::ModelSpec> read = wire::decode<spec::ModelSpec>(wire::encode(sent));
  ASSERT_TRUE(read) << read.error().message;
  const spec::ModelSpec& got = *read;
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
                      m.qk_norm_whole,
                      m.activation,
                      m.norms,
                      m.norm_less_one,
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
                      r.original_max_position,
                      r.factors,
                      r.short_factors);
  };
  EXPECT_EQ(dimensions(got), dimensions(sent));
  EXPECT_EQ(switches(got), switches(sent));
  EXPECT_EQ(rope(got), rope(sent));
  EXPECT_EQ(got.shard, sent.shard);
  EXPECT_EQ(got.stage, sent.stage);
  EXPECT_EQ(got.formats, sent.formats);
  EXPECT_EQ(got.scales, sent.scales);
  EXPECT_EQ(got.layer_rope, sent.layer_rope);
  EXPECT_EQ(got.local_theta, sent.local_theta);
  EXPECT_EQ(got.rotary_dim, sent.rotary_dim);
  EXPECT_EQ(got.attention_gate, sent.attention_gate);
  EXPECT_EQ(got.sinks, sent.sinks);
  EXPECT_EQ(got.experts, sent.experts);
  EXPECT_EQ(got.linear, sent.linear);
  EXPECT_EQ(got.mixer, sent.mixer);
  EXPECT_EQ(got.kv, sent.kv);
  EXPECT_EQ(got.encoder, sent.encoder);
}

TEST(LinkFields, KeepsWhatGemma4Has) {
  const spec::ModelSpec sent{.rope = {.kind = spec::RopeKind::kProportional, .share = 0.75},
                             .experts = {.beside = true},
                             .global_kv_heads = 31,
                             .global_head_dim = 22,
                             .keys_are_values = true,
                             .value_norm = true,
                             .layer_scale = true};
  const Result<spec::ModelSpec> read = wire::decode<spec::ModelSpec>(wire::encode(sent));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->rope.kind, sent.rope.kind);
  EXPECT_EQ(read->rope.share, sent.rope.share);
  EXPECT_EQ(read->experts, sent.experts);
  EXPECT_EQ(read->global_kv_heads, sent.global_kv_heads);
  EXPECT_EQ(read->global_head_dim, sent.global_head_dim);
  EXPECT_TRUE(read->keys_are_values && read->value_norm && read->layer_scale);
}

TEST(LinkFields, RefusesValueHeadsWithoutAKeyHead) {
  spec::ModelSpec model = every_field_set();
  model.linear.value_heads = 5;
  EXPECT_EQ(error_of(model),
            "message ModelSpec.linear: want value heads that are a multiple of key heads");
}

TEST(LinkFields, RefusesTooFewFactors) {
  spec::ModelSpec model = every_field_set();
  model.rope.factors.pop_back();
  EXPECT_THAT(error_of(model), EndsWith("a factor for each pair that rotates by one"));
  model.rope.kind = spec::RopeKind::kYarn;
  EXPECT_EQ(error_of(model), "");
}

TEST(LinkFields, RefusesAShardThatCannotBe) {
  spec::ModelSpec model = every_field_set();
  model.shard.rank = 4;
  EXPECT_EQ(error_of(model), "message ModelSpec.shard: want a rank below ranks");
  model.shard = {.rank = 0, .ranks = 8};
  EXPECT_EQ(error_of(model),
            "message ModelSpec: want at most as many ranks as tokens in the vocabulary, and a "
            "factor for each pair that rotates by one");
  EXPECT_EQ(error_of(JoinGroup{.rank = 0, .ranks = 1}),
            "message JoinGroup: want a rank below ranks, which are several");
  EXPECT_EQ(error_of(JoinPipe{.stage = 2, .stages = 2}),
            "message JoinPipe: want a stage below stages, which are several");
}

TEST(LinkFields, KeepsEverySamplingParameter) {
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
      .pooling = spec::Pooling::kMean,
      .in_one_pass = true,
      .second_text = 9};
  const Result<spec::SamplingParams> read = wire::decode<spec::SamplingParams>(wire::encode(sent));
  ASSERT_TRUE(read) << read.error().message;
  const spec::SamplingParams& got = *read;
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
                      p.pooling,
                      p.in_one_pass,
                      p.second_text);
  };
  EXPECT_EQ(fields(got), fields(sent));
}

TEST(LinkFields, KeepsUsageByKind) {
  ledger::PoolUsage sent{.total = 9, .free = 2, .version = 11};
  sent.by_kind[0] = {.reserved = 4, .held = 3};
  sent.by_kind[ledger::kLeaseKinds - 1] = {.reserved = 3, .held = 0};
  const Result<ledger::PoolUsage> got = wire::decode<ledger::PoolUsage>(wire::encode(sent));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, sent);
  const ledger::PoolUsage nobody{.total = 9};
  EXPECT_EQ(wire::encode(nobody).size(), 2U) << "kinds that nobody holds are left out";
}

TEST(LinkFields, NamesTheFirstThingThatCannotBe) {
  spec::ModelSpec model = every_field_set();
  model.layers = -3;
  model.heads = -4;
  const std::string found = error_of(model);
  EXPECT_EQ(found.substr(0, found.find(" to ")), "message ModelSpec.layers: -3; want 0");
  model.architecture = static_cast<spec::Architecture>(99);
  EXPECT_EQ(error_of(model), "message ModelSpec.architecture: 99; the greatest known is 20");
  EXPECT_EQ(error_of(policy::Footprint{.kv = {{.tokens_per_block = 0, .blocks_per_page = 1}}}),
            "message Footprint.kv[0]: want blocks that hold something");
  EXPECT_EQ(error_of(Beat{.threads = std::vector<policy::ThreadPulse>(kBeatThreadsMost + 1)}),
            "message Beat: want at most 16 threads");
  EXPECT_EQ(error_of(WorkerHello{.cores = {65536}}),
            "message WorkerHello.cores: 65536; want 0 to 65535");
}

}  // namespace
}  // namespace heddle::rpc
