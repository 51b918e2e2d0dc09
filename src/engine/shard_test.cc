// Shards of a model, run by ranks in lockstep, against the whole model: each rank is a thread with
// a device, pages and an engine of its own.

#include "spec/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "collective/shared_collective.h"
#include "engine/decoder_rig.h"
#include "engine/engine.h"
#include "engine/pipe.h"
#include "engine/test_host.h"
#include "engine/workspace.h"
#include "store/test_files.h"

namespace heddle::engine {
namespace {

using collective::SharedArea;
using collective::SharedCollective;
using spec::DType;
using spec::FinishReason;
using spec::ModelSpec;

constexpr ModelId kModel{3};

struct Case {
  std::string name{};
  ModelSpec model{};
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

ModelSpec gemma4_of(ModelSpec gemma) {
  gemma.architecture = spec::Architecture::kGemma4;
  gemma.value_norm = gemma.layer_scale = gemma.keys_are_values = true;
  gemma.global_kv_heads = 4;
  gemma.global_head_dim = 24;
  gemma.rope = {.kind = spec::RopeKind::kProportional, .share = 0.25};
  return gemma;
}

ModelSpec gemma4_moe_of(const ModelSpec& gemma) {
  ModelSpec model = gemma4_of(gemma);
  model.intermediate = 16;
  model.experts = {.count = 3, .active = 2, .intermediate = 8, .normalised = true, .beside = true};
  return model;
}

/// Each architecture with what it alone has; heads for eight ranks in two of them.
std::vector<Case> cases() {
  ModelSpec llama{.architecture = spec::Architecture::kLlama,
                  .hidden = 48,
                  .layers = 3,
                  .heads = 8,
                  .kv_heads = 8,
                  .head_dim = 8,
                  .intermediate = 80,
                  .vocab = 101,
                  .max_position = 160,
                  .rms_eps = 1e-5,
                  .out_bias = true,
                  .mlp_bias = true,
                  .window = {0, 0, 0}};
  ModelSpec mistral = llama;
  mistral.architecture = spec::Architecture::kMistral;
  mistral.kv_heads = 4;
  mistral.out_bias = mistral.mlp_bias = false;
  mistral.window = {24, 24, 24};
  ModelSpec qwen2 = mistral;
  qwen2.architecture = spec::Architecture::kQwen2;
  qwen2.qkv_bias = qwen2.tied_embeddings = true;
  qwen2.window = {0, 16, 0};
  ModelSpec qwen3 = llama;
  qwen3.architecture = spec::Architecture::kQwen3;
  qwen3.heads = 16;
  qwen3.out_bias = qwen3.mlp_bias = false;
  qwen3.qk_norm = true;
  ModelSpec mixtral = mistral;
  mixtral.architecture = spec::Architecture::kMixtral;
  mixtral.window = {0, 0, 0};
  mixtral.intermediate = 0;
  mixtral.experts = {.count = 5, .active = 2, .intermediate = 16, .normalised = true};
  ModelSpec shared = qwen2;
  shared.architecture = spec::Architecture::kQwen2Moe;
  shared.experts = {.count = 4, .active = 3, .intermediate = 8};
  ModelSpec gemma = qwen3;
  gemma.architecture = spec::Architecture::kGemma3;
  gemma.activation = spec::Activation::kGeluTanh;
  gemma.norms = spec::Norms::kAround;
  gemma.norm_less_one = gemma.tied_embeddings = true;
  gemma.scales = {.embedding = 7, .attention = 0.3, .attention_cap = 3, .logit_cap = 9};
  gemma.window = {16, 16, 0};
  gemma.layer_rope = {spec::LayerRope::kLocal, spec::LayerRope::kLocal, spec::LayerRope::kModels};
  ModelSpec granite = llama;
  granite.architecture = spec::Architecture::kGranite;
  granite.scales = {.embedding = 3, .attention = 0.2, .residual = 0.4, .logits = 0.5};
  ModelSpec phi3 = mistral;
  phi3.architecture = spec::Architecture::kPhi3;
  ModelSpec gpt_oss = mixtral;
  gpt_oss.architecture = spec::Architecture::kGptOss;
  gpt_oss.qkv_bias = gpt_oss.out_bias = gpt_oss.sinks = true;
  gpt_oss.window = {24, 0, 24};
  gpt_oss.experts.biased = true;
  gpt_oss.experts.gate_limit = 1.5;
  gpt_oss.experts.gate_gain = 1.7;
  return {{"Llama", llama},
          {"Mistral", mistral},
          {"Qwen2", qwen2},
          {"Qwen3", qwen3},
          {"Mixtral", mixtral},
          {"Qwen2Moe", shared},
          {"Gemma3", gemma},
          {"Gemma4", gemma4_of(gemma)},
          {"Gemma4Moe", gemma4_moe_of(gemma)},
          {"Granite", granite},
          {"Phi3", phi3},
          {"GptOss", gpt_oss}};
}

/// A model of random weights on disk.
struct Files {
  explicit Files(const ModelSpec& model) {
    Rng rng(29);
    store::write_safetensors(directory.path() / "model.safetensors",
                             store::plausible_model(model, rng));
    tensors = store::TensorSet::open(directory.path()).value();
  }
  store::TempDirectory directory{};
  store::TensorSet tensors{};
};

/// What `body(rank, group)` gives on each rank; with one rank there is no group.
template <class Body>
auto on_ranks(std::int64_t ranks, Body&& body) {
  using Value = decltype(body(std::int64_t{0}, static_cast<SharedCollective*>(nullptr)));
  std::vector<std::optional<Value>> values(static_cast<std::size_t>(ranks));
  if (ranks == 1) {
    values[0] = body(0, nullptr);
    return values;
  }
  const auto area = SharedArea::create(ranks).value();
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SharedCollective group(area, rank);
      values[static_cast<std::size_t>(rank)] = body(rank, &group);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return values;
}

std::vector<TokenId> draw_tokens(Rng& rng, const ModelSpec& model, std::int64_t count) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(model.vocab))));
  }
  return tokens;
}

class ShardTest : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] std::vector<std::int64_t> possible_ranks() const {
    std::vector<std::int64_t> ranks;
    for (const std::int64_t n : {2, 4, 8}) {
      if (spec::divides(model_, n)) {
        ranks.push_back(n);
      }
    }
    return ranks;
  }

  /// Logits of all `tokens` on each rank, in chunks of at most `chunk`.
  std::vector<std::optional<std::vector<float>>> logits(std::int64_t ranks,
                                                        DType dtype,
                                                        const std::vector<TokenId>& tokens,
                                                        std::size_t chunk) {
    return on_ranks(ranks, [&](std::int64_t rank, collective::Collective* group) {
      TestHost host;
      const LoadedModel model =
          host.load(files_.tensors, spec::shard_of(model_, {.rank = rank, .ranks = ranks}), dtype);
      const LayerRange all = all_layers(model.spec);
      DecoderRig rig(host, model, all, ImageIs::kPresent, group);
      SequenceKv sequence = rig.kv().make_sequence();
      std::vector<float> result;
      for (std::size_t done = 0; done < tokens.size(); done += chunk) {
        const std::size_t n = std::min(chunk, tokens.size() - done);
        std::vector<float> hidden;
        rig.run(std::span(tokens).subspan(done, n),
                static_cast<std::int64_t>(done),
                sequence,
                all,
                hidden);
        const std::vector<float> part = rig.logits(hidden);
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    });
  }

  ModelSpec model_ = GetParam().model;
  Files files_{model_};
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// As in golden_test.cc: each row's largest distance relative to its largest magnitude, at least 1.
double distance(const std::vector<float>& got, const std::vector<float>& expected, std::size_t n) {
  double worst = 0.0;
  for (std::size_t row = 0; row < expected.size(); row += n) {
    double scale = 1.0;
    double most = 0.0;
    for (std::size_t i = row; i < row + n; ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
      most = std::max(most, std::abs(static_cast<double>(got[i] - expected[i])));
    }
    worst = std::max(worst, most / scale);
  }
  return worst;
}

/// For the test's record: the table of docs/contracts/engine.md is written from it.
std::string in_words(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1e", value);
  return text.data();
}

/// What is expected of shards in `dtype`: to be as near to the whole model as this. int8 is held
/// against the float32 model, since shards round rows of their own.
double bound(DType dtype, double whole_int8) {
  return dtype == DType::kF32 ? 1e-5 : dtype == DType::kBf16 ? 1e-2 : 1.5 * whole_int8;
}

TEST_P(ShardTest, LogitsAreTheWholeModels) {
  Rng rng(5);
  const std::vector<TokenId> tokens = draw_tokens(rng, model_, 70);
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  const std::vector<float> truth = *logits(1, DType::kF32, tokens, 70)[0];
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
    const std::vector<float> whole = *logits(1, dtype, tokens, 70)[0];
    const double whole_int8 = dtype == DType::kI8 ? distance(whole, truth, vocab) : 0.0;
    for (const std::int64_t ranks : possible_ranks()) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks in " << spec::dtype_name(dtype));
      const auto parts = logits(ranks, dtype, tokens, 70);
      const double found = distance(*parts[0], dtype == DType::kI8 ? truth : whole, vocab);
      RecordProperty(std::string(spec::dtype_name(dtype)) + "_" + std::to_string(ranks),
                     in_words(found) + " " + in_words(whole_int8));
      EXPECT_LE(found, bound(dtype, whole_int8));
      for (const auto& rank : parts) {
        EXPECT_TRUE(same_bits(*rank, *parts[0])) << "what one rank has differs from another's";
      }
      EXPECT_TRUE(same_bits(*logits(ranks, dtype, tokens, 23)[0], *parts[0])) << "in chunks";
    }
  }
}

/// Pages of 4096 bytes that an engine's workspace takes.
std::uint64_t workspace_pages(const ModelSpec& spec, DType dtype) {
  return store::pages_for(
      workspace_bytes(device::Kind::kCpu, spec, dtype, EngineOptions{}.max_batch_tokens), 4096);
}

/// One rank's engine over its shard, or one over the whole model, and so many pages for weights and
/// KV.
struct RankEngine {
  RankEngine(const store::TensorSet& tensors,
             const ModelSpec& spec,
             DType dtype,
             SharedCollective* group,
             std::uint64_t pages = 160)
      : host(pages + workspace_pages(spec, dtype), 4096),
        model(host.load(tensors, spec, dtype)),
        engine(Engine::create(host.device(), host.pool(), {.prefix_cache = true}).value()) {
    HEDDLE_CHECK(engine->add_model(kModel, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    if (group != nullptr) {
      engine->set_group(kModel, group);
    }
    if (model.spec.shard.ranks > 1) {
      HEDDLE_CHECK(engine->pipes().set_share(kModel, host.pool().free_count()).has_value());
    }
    engine->set_image_ready(kModel, model.layout.bytes);
  }

  TestHost host;
  LoadedModel model;
  std::unique_ptr<Engine> engine;
};

SequenceStart start_of(std::uint64_t id, std::vector<TokenId> prompt, spec::SamplingParams params) {
  const auto size = static_cast<std::int64_t>(prompt.size());
  return {.id = SequenceId{id},
          .model = kModel,
          .tokens = std::move(prompt),
          .prompt_tokens = size,
          .params = std::move(params)};
}

policy::StepPlan plan_of(std::vector<policy::StepSlice> slices) {
  return {.batches = {{.model = kModel, .slices = std::move(slices)}}};
}

/// All tokens that a sequence generates when it runs alone.
std::vector<TokenId> generate(Engine& engine, const SequenceStart& start) {
  HEDDLE_CHECK(engine.add_sequence(start).has_value());
  std::vector<TokenId> tokens;
  std::int64_t pending = start.prompt_tokens;
  for (auto finish = FinishReason::kNone; finish == FinishReason::kNone; pending = 1) {
    const auto outcome = engine.run(plan_of({{.sequence = start.id, .tokens = pending}}));
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    tokens.push_back(*outcome->results[0].token);
    finish = outcome->results[0].finish;
  }
  engine.remove_sequence(start.id);
  return tokens;
}

std::vector<SequenceStart> draw_requests(const ModelSpec& model) {
  Rng rng(77);
  std::vector<SequenceStart> requests;
  const std::vector<TokenId> common = draw_tokens(rng, model, 30);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    std::vector<TokenId> prompt(common.begin(), common.begin() + 10 + 5 * std::ssize(requests));
    const std::vector<TokenId> rest = draw_tokens(rng, model, 7);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    requests.push_back(start_of(id,
                                prompt,
                                {.temperature = id % 2 == 0 ? 0.0F : 0.8F,
                                 .top_p = 0.95F,
                                 .repetition_penalty = 1.1F,
                                 .seed = id,
                                 .max_tokens = 64,
                                 .logprobs = 2}));
  }
  return requests;
}

struct Told {
  std::vector<TokenId> tokens{};
  std::vector<spec::TokenDetails> details{};
  std::int64_t starved = 0;
};

/// Runs requests together, in chunks, with preemptions and too few pages, as `seed` has it. Ranks
/// that are given the same seed and see the same results plan the same.
std::map<SequenceId, Told> run_together(RankEngine& rank,
                                        std::vector<SequenceStart> requests,
                                        std::uint64_t seed) {
  Rng rng(seed);
  Engine& engine = *rank.engine;
  std::map<SequenceId, Told> told;
  std::map<SequenceId, std::int64_t> pending;
  std::int64_t starved = 0;
  const auto most = engine.kv_pages_for(kModel, 110) + 2;
  if (rank.model.spec.shard.ranks > 1) {
    HEDDLE_CHECK(engine.pipes().set_share(kModel, most).value() == most);
  } else {
    HEDDLE_CHECK(
        rank.host.pool().take(kWeightsLease, rank.host.pool().free_count() - most).has_value());
  }
  for (const SequenceStart& request : requests) {
    HEDDLE_CHECK(engine.add_sequence(request).has_value());
    pending[request.id] = request.prompt_tokens - engine.take_prefix(request.id);
  }
  for (int step = 0; !pending.empty(); ++step) {
    HEDDLE_CHECK(step < 5000);
    std::vector<policy::StepSlice> slices;
    for (auto& [id, tokens] : pending) {
      if (rng.below(20) == 0) {
        engine.preempt(id);
        tokens = requests[id.value() - 1].prompt_tokens + std::ssize(told[id].tokens) -
                 engine.take_prefix(id);
      }
      if (rng.below(4) != 0) {
        const auto n = static_cast<std::int64_t>(1 + rng.below(static_cast<std::uint64_t>(tokens)));
        slices.push_back({.sequence = id, .tokens = n});
      }
    }
    const auto outcome = engine.run(plan_of(slices));
    HEDDLE_CHECK(outcome.has_value() && outcome->failed.empty() && outcome->unready.empty());
    for (const SequenceId id : outcome->starved) {
      ++starved;
      engine.preempt(id);
      pending[id] = requests[id.value() - 1].prompt_tokens + std::ssize(told[id].tokens);
    }
    for (const SliceResult& result : outcome->results) {
      Told& own = told[result.sequence];
      if (result.token) {
        own.tokens.push_back(*result.token);
        own.details.push_back(result.details);
      }
      pending[result.sequence] = requests[result.sequence.value() - 1].prompt_tokens +
                                 std::ssize(own.tokens) - result.computed;
      if (result.finish != FinishReason::kNone) {
        engine.remove_sequence(result.sequence);
        pending.erase(result.sequence);
      }
    }
  }
  told.begin()->second.starved = starved;
  return told;
}

TEST_P(ShardTest, TokensAreTheWholeModelsHoweverTheyAreScheduled) {
  const std::vector<SequenceStart> requests = draw_requests(model_);
  RankEngine whole(files_.tensors, model_, DType::kF32, nullptr);
  std::map<SequenceId, std::vector<TokenId>> expected;
  for (const SequenceStart& request : requests) {
    expected[request.id] = generate(*whole.engine, request);
    ASSERT_EQ(expected[request.id].size(), 64U);
  }
  std::int64_t starved = 0;
  for (const std::int64_t ranks : possible_ranks()) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const auto told = on_ranks(ranks, [&](std::int64_t rank, SharedCollective* group) {
      RankEngine own(files_.tensors,
                     spec::shard_of(model_, {.rank = rank, .ranks = ranks}),
                     DType::kF32,
                     group);
      return run_together(own, requests, /*seed=*/static_cast<std::uint64_t>(ranks));
    });
    for (const SequenceStart& request : requests) {
      EXPECT_EQ(told[0]->at(request.id).tokens, expected[request.id]);
      for (const auto& rank : told) {
        EXPECT_EQ(rank->at(request.id).tokens, told[0]->at(request.id).tokens);
        ASSERT_EQ(rank->at(request.id).details.size(), 64U);
        for (std::size_t i = 0; i < 64; ++i) {
          EXPECT_EQ(rank->at(request.id).details[i].logprobs,
                    told[0]->at(request.id).details[i].logprobs);
        }
      }
    }
    starved += told[0]->begin()->second.starved;
  }
  EXPECT_GT(starved, 0) << "pages should be short now and then";
}

// Rounded types are further from the whole model, but no less the same on all ranks and in any
// schedule.
TEST_P(ShardTest, RanksSampleTheSameTokensInAnySchedule) {
  const std::vector<SequenceStart> requests = draw_requests(model_);
  for (const DType dtype : {DType::kBf16, DType::kI8}) {
    SCOPED_TRACE(spec::dtype_name(dtype));
    const auto run = [&](std::uint64_t seed) {
      return on_ranks(2, [&](std::int64_t rank, SharedCollective* group) {
        RankEngine own(
            files_.tensors, spec::shard_of(model_, {.rank = rank, .ranks = 2}), dtype, group);
        return run_together(own, requests, seed);
      });
    };
    const auto once = run(1);
    const auto again = run(2);
    for (const SequenceStart& request : requests) {
      EXPECT_EQ(once[0]->at(request.id).tokens, once[1]->at(request.id).tokens);
      EXPECT_EQ(once[0]->at(request.id).tokens, again[0]->at(request.id).tokens);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures,
                         ShardTest,
                         testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// Ranks of a Llama, for what goes wrong.
class ShardFailureTest : public testing::Test {
 protected:
  /// The error of the first step that has one, on each rank, of at most ten. `before(rank, engine,
  /// group, step)` is called before each.
  template <class Before>
  std::vector<std::optional<std::optional<Error>>> first_errors(Before&& before) {
    return on_ranks(2, [&](std::int64_t rank, SharedCollective* group) {
      RankEngine own(
          files_.tensors, spec::shard_of(model_, {.rank = rank, .ranks = 2}), DType::kF32, group);
      HEDDLE_CHECK(
          own.engine->add_sequence(start_of(1, {1, 2, 3}, {.max_tokens = 50})).has_value());
      std::optional<Error> error;
      for (int step = 0; step < 10 && !error; ++step) {
        before(rank, *own.engine, *group, step);
        const auto outcome =
            own.engine->run(plan_of({{.sequence = SequenceId{1}, .tokens = step == 0 ? 3 : 1}}));
        if (!outcome) {
          error = outcome.error();
        }
      }
      return error;
    });
  }

  ModelSpec model_ = cases()[0].model;
  Files files_{model_};
};

TEST_F(ShardFailureTest, WithoutTroubleThereIsNone) {
  for (const auto& error : first_errors([](auto&&...) {})) {
    EXPECT_FALSE(error->has_value());
  }
}

TEST_F(ShardFailureTest, RanksThatAreToldDifferentThingsStop) {
  const auto errors =
      first_errors([](std::int64_t rank, Engine& engine, SharedCollective& /*group*/, int step) {
        if (rank == 1 && step == 0) {  // Another prompt than the other rank's, and just as long.
          engine.remove_sequence(SequenceId{1});
          HEDDLE_CHECK(engine.add_sequence(start_of(1, {1, 2, 4}, {.max_tokens = 50})).has_value());
        }
      });
  for (const auto& error : errors) {
    ASSERT_TRUE(error->has_value());
    EXPECT_EQ((*error)->code, Code::kCorrupt);
    EXPECT_NE((*error)->message.find("rank 1 gives"), std::string::npos) << (*error)->message;
  }
}

TEST_F(ShardFailureTest, AbandoningTheGroupEndsAStep) {
  const auto errors =
      first_errors([](std::int64_t rank, Engine& /*engine*/, SharedCollective& group, int step) {
        if (rank == 0 && step == 4) {
          group.abandon();  // As somebody who saw a rank die would.
        }
      });
  for (const auto& error : errors) {
    ASSERT_TRUE(error->has_value());
    EXPECT_EQ((*error)->code, Code::kUnavailable);
  }
}

TEST_F(ShardFailureTest, ARankWhoseWeightsWillNotComeLeavesNobodyWaiting) {
  const auto errors =
      first_errors([](std::int64_t rank, Engine& engine, SharedCollective& /*group*/, int step) {
        if (rank == 1 && step == 4) {
          engine.abandon_image(kModel);
        }
      });
  for (const auto& error : errors) {
    ASSERT_TRUE(error->has_value());
    EXPECT_EQ((*error)->code, Code::kUnavailable);
  }
}

TEST_F(ShardFailureTest, AShardThatHasLeftItsGroupAnswersAsBeforeInTheNext) {
  const auto area = SharedArea::create(2).value();
  const SequenceStart request =
      start_of(1, {1, 2, 3, 4, 5}, {.temperature = 0.0F, .max_tokens = 12, .ignore_eos = true});
  const auto told = on_ranks(2, [&](std::int64_t rank, SharedCollective* group) {
    SharedCollective next(area, rank);
    RankEngine own(
        files_.tensors, spec::shard_of(model_, {.rank = rank, .ranks = 2}), DType::kF32, group);
    const std::vector<TokenId> before = generate(*own.engine, request);
    const std::int64_t pages = own.engine->pipes().set_share(kModel, 0).value();
    HEDDLE_CHECK(pages == 0 && group->agree(0).has_value());
    own.engine->set_group(kModel, nullptr);
    own.engine->set_group(kModel, &next);
    HEDDLE_CHECK(own.engine->pipes().set_share(kModel, own.host.pool().free_count()).has_value());
    return std::pair(before, generate(*own.engine, request));
  });
  ASSERT_EQ(told[0]->first.size(), 12U);
  for (const auto& rank : told) {
    EXPECT_EQ(rank->second, told[0]->first);
  }
}

TEST_F(ShardFailureTest, AShardWithoutAGroupOrWithAnothersIsABug) {
  const ModelSpec part = spec::shard_of(model_, {.rank = 1, .ranks = 2});
  RankEngine alone(files_.tensors, part, DType::kF32, nullptr);
  ASSERT_TRUE(alone.engine->add_sequence(start_of(1, {1, 2, 3}, {.max_tokens = 5})));
  EXPECT_DEATH((void)alone.engine->run(plan_of({{.sequence = SequenceId{1}, .tokens = 3}})),
               "CHECK");
  SharedCollective first(SharedArea::create(2).value(), 0);
  EXPECT_DEATH(alone.engine->set_group(kModel, &first), "CHECK");
  EXPECT_DEATH(alone.engine->set_group(kModel, nullptr), "CHECK") << "it has a sequence";
}

}  // namespace
}  // namespace heddle::engine
