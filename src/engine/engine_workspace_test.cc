// The workspace of an engine: pages of the pool that its models share.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_host.h"
#include "engine/workspace.h"

namespace heddle::engine {
namespace {

constexpr ModelId kSmall{1};
constexpr ModelId kLarge{2};
constexpr std::int64_t kTokens = 2048;
constexpr memory::OwnerId kOthers{9};

class EngineWorkspaceTest : public testing::Test {
 protected:
  EngineWorkspaceTest() {
    make();
    small_ = load("qwen3-window", spec::DType::kF32);
    large_ = load("llama-gqa-sharded", spec::DType::kF32);
    if (needed(*small_) > needed(*large_)) {
      std::swap(small_, large_);
    }
  }

  void make() {
    engine_.reset();
    engine_ = Engine::create(host_.device(), host_.pool(), {.max_batch_tokens = kTokens}).value();
  }
  std::unique_ptr<LoadedModel> load(const std::string& golden, spec::DType dtype) {
    return std::make_unique<LoadedModel>(host_.load(golden_directory() / golden, dtype));
  }
  [[nodiscard]] std::int64_t needed(const LoadedModel& model) {
    const device::Properties& properties = host_.device().properties();
    return static_cast<std::int64_t>(
        store::pages_for(workspace_bytes(properties.kind, model.spec, model.layout.dtype, kTokens),
                         properties.page_bytes));
  }
  Result<void> add(ModelId id, const LoadedModel& model) {
    auto added = engine_->add_model(id, model.spec, model.layout, model.window.base(), kKvLease);
    if (added) {
      engine_->set_image_ready(id, model.layout.bytes);
    }
    return added;
  }
  [[nodiscard]] std::int64_t held() { return host_.pool().owned_count(kWorkspaceOwner); }

  /// The first greedy token after a prompt of 16.
  TokenId first_token(ModelId model, const std::vector<TokenId>& ids) {
    const SequenceId id{1};
    HEDDLE_CHECK(engine_
                     ->add_sequence({.id = id,
                                     .model = model,
                                     .tokens = {ids.begin(), ids.begin() + 16},
                                     .prompt_tokens = 16,
                                     .params = {.temperature = 0.0F, .max_tokens = 1}})
                     .has_value());
    const auto outcome =
        engine_->run({.batches = {{.model = model, .slices = {{.sequence = id, .tokens = 16}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    engine_->remove_sequence(id);
    return *outcome->results[0].token;
  }

  TestHost host_{512};
  std::unique_ptr<Engine> engine_{};
  std::unique_ptr<LoadedModel> small_{};
  std::unique_ptr<LoadedModel> large_{};
};

TEST_F(EngineWorkspaceTest, IsAsLargeAsTheLargestModelNeedsAndLiesInThePool) {
  ASSERT_LT(needed(*small_), needed(*large_));
  ASSERT_TRUE(add(kSmall, *small_));
  EXPECT_EQ(held(), needed(*small_));
  ASSERT_TRUE(add(kLarge, *large_));
  EXPECT_EQ(held(), needed(*large_));
  engine_->remove_model(kLarge);
  EXPECT_EQ(held(), needed(*large_)) << "until it is said";
  ASSERT_TRUE(engine_->set_workspace(needed(*small_)));
  EXPECT_EQ(held(), needed(*small_));
  engine_.reset();
  EXPECT_EQ(held(), 0);
  host_.pool().check_invariants();
}

TEST_F(EngineWorkspaceTest, MayHaveMorePagesThanAnybodyNeeds) {
  ASSERT_TRUE(engine_->set_workspace(needed(*large_) + 3));
  ASSERT_TRUE(add(kLarge, *large_));
  EXPECT_EQ(held(), needed(*large_) + 3);
  const auto too_many = engine_->set_workspace(10'000);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Code::kResourceExhausted);
  EXPECT_EQ(held(), needed(*large_) + 3);
  EXPECT_DEATH((void)engine_->set_workspace(1), "workspace_needed");
}

TEST_F(EngineWorkspaceTest, AModelForWhichItCannotGrowIsRefused) {
  ASSERT_TRUE(add(kSmall, *small_));
  const auto rest = host_.pool().take(kOthers, host_.pool().free_count()).value();
  const auto refused = add(kLarge, *large_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(held(), needed(*small_));
  host_.pool().put(kOthers, rest);
  ASSERT_TRUE(add(kLarge, *large_));
}

// Its pages held weights and KV before, lie here and there, and change while models come and go.
TEST_F(EngineWorkspaceTest, WhatItsPagesHeldAndWhereTheyLieMakesNoDifference) {
  const Golden golden = read_golden("qwen3-window");
  const auto qwen = load("qwen3-window", spec::DType::kF32);
  const auto all = host_.pool().take(kOthers, host_.pool().free_count()).value();
  for (const device::PageId page : all) {  // Numbers that are none, wherever they are read.
    std::memset(host_.device().page_address(page), 0xff, host_.device().properties().page_bytes);
  }
  std::vector<device::PageId> others;
  std::vector<device::PageId> free;
  for (std::size_t i = 0; i < all.size(); ++i) {
    (i % 2 == 0 ? others : free).push_back(all[i]);
  }
  host_.pool().put(kOthers, free);
  constexpr ModelId kQwen{3};
  ASSERT_TRUE(add(kQwen, *qwen));
  EXPECT_EQ(first_token(kQwen, golden.input_ids), golden.greedy[0]);
  ASSERT_TRUE(add(kLarge, *large_));
  (void)first_token(kLarge, std::vector<TokenId>(16, 3));
  EXPECT_EQ(first_token(kQwen, golden.input_ids), golden.greedy[0]);
  engine_->remove_model(kLarge);
  ASSERT_TRUE(engine_->set_workspace(needed(*qwen)));
  EXPECT_EQ(first_token(kQwen, golden.input_ids), golden.greedy[0]);
}

}  // namespace
}  // namespace heddle::engine
