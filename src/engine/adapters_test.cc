// LoRA adapters in the engine, against models that have them in their weights: those are made here,
// and `transformers` has made what the engine gives for such models (golden_test.cc).

#include "engine/adapters.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapted_model_test.h"

namespace heddle::engine {
namespace {

class AdapterGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(AdapterGoldenTest, AnswersAreTheMergedModels) {
  AdaptedModel model(GetParam(), 2);
  model.open(spec::DType::kF32);
  for (const float temperature : {0.0F, 1.0F}) {
    expect_merged_answers(model, 24, temperature);
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
