// LoRA adapters in the engine, against models that have them in their weights: those are made here,
// and `transformers` has made what the engine gives for such models (golden_test.cc).

#include "engine/adapters.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_host.h"
#include "store/test_adapter.h"

namespace heddle::engine {
namespace {

constexpr ModelId kBaseModel{1};
constexpr ModelId kMergedModel{2};

/// A golden model, adapters of it, and for each a model with the adapter in its weights.
class AdaptedModel {
 public:
  AdaptedModel(const std::string& name, int adapters, std::uint64_t pages = 4096)
      : host_(pages, std::size_t{4} << 10U) {
    const std::filesystem::path source = golden_directory() / name;
    store::Checkpoint checkpoint = store::Checkpoint::open(source).value();
    spec_ = checkpoint.config.model;
    spec_.adapter_rank = 8;
    base_ = store::all_tensors(checkpoint.tensors);
    for (int i = 0; i < adapters; ++i) {
      const store::TestAdapter made = store::random_adapter(base_, rng_, i == 0 ? 4 : 7);
      const std::filesystem::path directory = directory_.path() / std::to_string(i);
      made.write(directory / "adapter");
      made_.push_back(made);
    }
  }

  void open(spec::DType dtype, const EngineOptions& options = {}) {
    engine_.reset();
    engine_ = Engine::create(host_.device(), host_.pool(), options).value();
    models_.clear();
    add(kBaseModel, base_, dtype);
    adapters_.clear();
    for (std::size_t i = 0; i < made_.size(); ++i) {
      auto opened =
          store::Adapter::open(directory_.path() / std::to_string(i) / "adapter", spec_, dtype);
      HEDDLE_CHECK(opened.has_value());
      adapters_.push_back(std::make_shared<const store::Adapter>(std::move(*opened)));
      add(ModelId(kMergedModel.value() + i), store::merged(base_, made_[i]), dtype);
    }
  }

  /// Answers of `tokens` tokens to the same prompt, all in the same steps: what each of these pairs
  /// of a model and an adapter says. -1: none.
  std::vector<std::vector<SliceResult>> answers(const std::vector<std::pair<ModelId, int>>& asked,
                                                std::int64_t tokens,
                                                float temperature = 0.0F) {
    std::vector<std::vector<SliceResult>> results(asked.size());
    std::map<ModelId, policy::ModelBatch> batches;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto& [model, adapter] = asked[i];
      SequenceStart begun = start(i + 1, model, adapter, tokens);
      begun.params.temperature = temperature;
      HEDDLE_CHECK(engine_->add_sequence(std::move(begun)).has_value());
      batches[model].model = model;
      batches[model].slices.push_back({.sequence = SequenceId{i + 1}, .tokens = kPrompt});
    }
    policy::StepPlan plan;
    for (const auto& [model, batch] : batches) {
      plan.batches.push_back(batch);
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      auto outcome = engine_->run(plan);
      HEDDLE_CHECK(outcome.has_value() && outcome->starved.empty() && outcome->failed.empty());
      for (SliceResult& result : outcome->results) {
        results[result.sequence.value() - 1].push_back(std::move(result));
      }
      for (policy::ModelBatch& batch : plan.batches) {
        for (policy::StepSlice& slice : batch.slices) {
          slice.tokens = 1;
        }
      }
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      engine_->remove_sequence(SequenceId{i + 1});
    }
    return results;
  }

  SequenceStart start(std::uint64_t id, ModelId model, int adapter, std::int64_t tokens) {
    SequenceStart start{
        .id = SequenceId{id},
        .model = model,
        .prompt_tokens = kPrompt,
        .params = {.temperature = 0.0F, .max_tokens = tokens, .ignore_eos = true, .logprobs = 5}};
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      start.tokens.push_back(static_cast<TokenId>((7 * i + 3) % spec_.vocab));
    }
    start.adapter = adapter < 0 ? nullptr : adapters_.at(static_cast<std::size_t>(adapter));
    return start;
  }

  static constexpr std::int64_t kPrompt = 20;
  TestHost& host() { return host_; }
  Engine& engine() { return *engine_; }

 private:
  void add(ModelId id, const store::TestTensors& tensors, spec::DType dtype) {
    const std::filesystem::path file = directory_.path() / "some.safetensors";
    store::write_safetensors(file, tensors);
    auto set = store::TensorSet::open_file(file).value();
    const auto added = models_.emplace(id, host_.load(set, spec_, dtype)).first;
    const LoadedModel& model = added->second;
    HEDDLE_CHECK(engine_->add_model(id, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    engine_->set_image_ready(id, model.layout.bytes);
  }

  Rng rng_{11};
  store::TempDirectory directory_{};
  TestHost host_;
  spec::ModelSpec spec_{};
  store::TestTensors base_{};
  std::vector<store::TestAdapter> made_{};
  std::map<ModelId, LoadedModel> models_{};
  std::unique_ptr<Engine> engine_{};
  std::vector<std::shared_ptr<const store::Adapter>> adapters_{};
};

std::vector<TokenId> tokens_of(const std::vector<SliceResult>& results) {
  std::vector<TokenId> tokens;
  for (const SliceResult& result : results) {
    tokens.push_back(result.token.value());
  }
  return tokens;
}

/// The largest difference of the log probability of a token that both told of first tokens.
double first_difference(const std::vector<SliceResult>& one,
                        const std::vector<SliceResult>& other) {
  double most = 0;
  int compared = 0;
  for (const spec::TokenLogprob& mine : one.front().details.logprobs) {
    for (const spec::TokenLogprob& theirs : other.front().details.logprobs) {
      if (mine.token == theirs.token) {
        ++compared;
        most = std::max(most, std::abs(static_cast<double>(mine.logprob - theirs.logprob)));
      }
    }
  }
  EXPECT_GE(compared, 3);
  return most;
}

/// The largest difference of the log probabilities of first tokens by rank, whichever those are:
/// tiny models are so sure of a token that texts alone would not tell adapters apart.
double by_place(const std::vector<SliceResult>& one, const std::vector<SliceResult>& other) {
  const auto& mine = one.front().details.logprobs;
  const auto& theirs = other.front().details.logprobs;
  double most = 0;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(mine[i].logprob - theirs[i].logprob)));
  }
  return most;
}

class AdapterGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(AdapterGoldenTest, AnswersAreTheMergedModels) {
  AdaptedModel model(GetParam(), 2);
  model.open(spec::DType::kF32);
  for (const float temperature : {0.0F, 1.0F}) {
    const auto said = model.answers({{kBaseModel, 0},
                                     {kMergedModel, -1},
                                     {kBaseModel, -1},
                                     {kBaseModel, 1},
                                     {ModelId(kMergedModel.value() + 1), -1}},
                                    24,
                                    temperature);
    EXPECT_EQ(tokens_of(said[0]), tokens_of(said[1]));
    EXPECT_EQ(tokens_of(said[3]), tokens_of(said[4]));
    EXPECT_LT(first_difference(said[0], said[1]), 1e-4);
    EXPECT_LT(first_difference(said[3], said[4]), 1e-4);
    EXPECT_GT(by_place(said[0], said[2]), 1e-2) << "the adapter is seen";
    EXPECT_GT(by_place(said[0], said[3]), 1e-2) << "and the other is another";
  }
}

TEST_P(AdapterGoldenTest, LogProbabilitiesInBfloat16AreNearTheMergedModels) {
  AdaptedModel model(GetParam(), 1);
  model.open(spec::DType::kBf16);
  const auto said = model.answers({{kBaseModel, 0}, {kMergedModel, -1}}, 1);
  EXPECT_LT(first_difference(said[0], said[1]), 0.15);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         AdapterGoldenTest,
                         testing::Values("llama-gqa-sharded",
                                         "llama-bias-eps",
                                         "mistral-window",
                                         "qwen2-tied",
                                         "qwen3-tied",
                                         "phi3",
                                         "gemma2-f32",
                                         "gemma3-old",
                                         "granite-f32",
                                         "olmo2-gqa-f32",
                                         "smollm3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(AdaptersTest, RunOnInt8BasesToo) {
  AdaptedModel model("llama-gqa-sharded", 1);
  model.open(spec::DType::kI8);
  const auto said = model.answers({{kBaseModel, 0}, {kMergedModel, -1}, {kBaseModel, -1}}, 1);
  EXPECT_LT(first_difference(said[0], said[1]), 0.3);
  EXPECT_GT(first_difference(said[0], said[2]), 0.0);
}

TEST(AdaptersTest, RowsWithoutOneKeepTheirBits) {
  AdaptedModel model("qwen3-tied", 1);
  model.open(spec::DType::kBf16);
  const auto alone = model.answers({{kBaseModel, -1}}, 8);
  const auto beside = model.answers({{kBaseModel, 0}, {kBaseModel, -1}, {kBaseModel, 0}}, 8);
  EXPECT_EQ(tokens_of(alone[0]), tokens_of(beside[1]));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(alone[0][i].details.logprobs, beside[1][i].details.logprobs);
  }
}

TEST(AdaptersTest, PrefixesAreSharedWithinAnAdapterAlone) {
  AdaptedModel model("llama-gqa-sharded", 2);
  model.open(spec::DType::kF32, {.prefix_cache = true, .prefix_secret = {1, 2}});
  const auto found = [&](int adapter) {
    HEDDLE_CHECK(model.engine().add_sequence(model.start(9, kBaseModel, adapter, 4)).has_value());
    const std::int64_t tokens = model.engine().take_prefix(SequenceId{9});
    model.engine().remove_sequence(SequenceId{9});
    return tokens;
  };
  (void)model.answers({{kBaseModel, 0}}, 2);
  EXPECT_GT(found(0), 0);
  EXPECT_EQ(found(1), 0);
  EXPECT_EQ(found(-1), 0);
}

TEST(AdaptersTest, WeightsArePagesOfTheModelThenCachedThenGone) {
  AdaptedModel model("llama-gqa-sharded", 2);
  model.open(spec::DType::kF32, {.prefix_cache = true, .prefix_secret = {1, 2}});
  Engine& engine = model.engine();
  const std::int64_t free = model.host().pool().free_count();
  HEDDLE_CHECK(engine.add_sequence(model.start(1, kBaseModel, 0, 4)).has_value());
  EXPECT_EQ(engine.kv_pages(kBaseModel), 0);
  const policy::StepPlan plan{
      .batches = {{.model = kBaseModel,
                   .slices = {{.sequence = SequenceId{1}, .tokens = AdaptedModel::kPrompt}}}}};
  ASSERT_EQ(engine.run(plan)->results.size(), 1U);
  const std::vector<AdapterUse> uses = adapters_of(engine, kBaseModel);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_GT(uses[0].pages, 0);
  EXPECT_EQ(uses[0].sequences, 1);
  EXPECT_EQ(uses[0].loads, 1U);
  EXPECT_GT(engine.kv_pages(kBaseModel), uses[0].pages);
  EXPECT_EQ(model.host().pool().free_count() + engine.kv_pages(kBaseModel) + engine.cached_pages(),
            free);
  engine.preempt(SequenceId{1});
  EXPECT_EQ(engine.kv_pages(kBaseModel), 0);
  EXPECT_GE(engine.cached_pages(), uses[0].pages);
  EXPECT_EQ(adapters_of(engine, kBaseModel)[0].sequences, 0);
  engine.trim_cached(0, ledger::DropReason::kLoad);
  EXPECT_EQ(adapters_of(engine, kBaseModel)[0].pages, 0);
  EXPECT_EQ(model.host().pool().free_count(), free);
  ASSERT_EQ(engine.run(plan)->results.size(), 1U);  // It comes again.
  EXPECT_EQ(adapters_of(engine, kBaseModel)[0].loads, 2U);
  engine.remove_sequence(SequenceId{1});
}

TEST(AdaptersTest, WithoutACacheNothingStays) {
  AdaptedModel model("llama-gqa-sharded", 1);
  model.open(spec::DType::kF32);
  const std::int64_t free = model.host().pool().free_count();
  (void)model.answers({{kBaseModel, 0}}, 2);
  EXPECT_EQ(model.engine().cached_pages(), 0);
  EXPECT_EQ(model.host().pool().free_count(), free);
}

TEST(AdaptersTest, ASequenceWhoseAdapterFindsNoPagesIsStarved) {
  AdaptedModel model("llama-gqa-sharded", 1);
  model.open(spec::DType::kF32);
  Engine& engine = model.engine();
  memory::PagePool& pool = model.host().pool();
  HEDDLE_CHECK(pool.take(kWeightsLease, pool.free_count() - 1).has_value());
  HEDDLE_CHECK(engine.add_sequence(model.start(1, kBaseModel, 0, 4)).has_value());
  const auto outcome = engine.run(
      {.batches = {{.model = kBaseModel, .slices = {{.sequence = SequenceId{1}, .tokens = 4}}}}});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->starved, (std::vector<SequenceId>{SequenceId{1}}));
  EXPECT_EQ(engine.kv_pages(kBaseModel), 0);
  EXPECT_EQ(pool.free_count(), 1);
}

TEST(AdaptersTest, AnAdapterOfALargerRankThanThereIsRoomForIsRefused) {
  AdaptedModel model("llama-gqa-sharded", 1);
  model.open(spec::DType::kF32);
  spec::ModelSpec spec =
      store::Checkpoint::open(golden_directory() / "llama-gqa-sharded").value().config.model;
  Rng rng(3);
  const store::TempDirectory directory;
  store::random_adapter(
      store::all_tensors(store::TensorSet::open(golden_directory() / "llama-gqa-sharded").value()),
      rng,
      9)
      .write(directory.path());
  SequenceStart start = model.start(1, kBaseModel, -1, 4);
  start.adapter = std::make_shared<const store::Adapter>(
      store::Adapter::open(directory.path(), spec, spec::DType::kF32).value());
  const auto added = model.engine().add_sequence(std::move(start));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, Code::kInvalidArgument);
}

TEST(AdaptersTest, SaltsOfAdaptersAndOthersNeverMeet) {
  EXPECT_EQ(adapter_salt(nullptr, "k1/x"), "k1/x");
  EXPECT_NE(adapter_salt(nullptr, "\nsome\nk1"), "\nsome\nk1");
}

}  // namespace
}  // namespace heddle::engine
