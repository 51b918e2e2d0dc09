#include "engine/guests.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kModel{7};
constexpr SequenceId kSequence{1};
constexpr memory::OwnerId kHostLease{9};
constexpr std::int64_t kPrompt = 300;  // Two borders of any instruction set.
constexpr std::int64_t kAnswer = 24;

/// Answers by computing itself, as long as it lives.
class InlineHost final : public ops::AttentionHost {
 public:
  void begin_step(std::span<const ops::GuestSequence> sequences) override {
    steps.emplace_back(sequences.begin(), sequences.end());
  }
  void post(const ops::GuestRows& rows) override { layers.insert(rows.layer); }
  bool await(const ops::GuestRows& /*rows*/) override { return false; }

  std::vector<std::vector<ops::GuestSequence>> steps{};
  std::set<std::int64_t> layers{};
};

/// What a sequence generates is the same, to the bit, wherever its KV is.
class GuestsTest : public testing::TestWithParam<const char*> {
 protected:
  GuestsTest()
      : model_(host_.load(golden_directory() / GetParam(), spec::DType::kBf16)),
        engine_(Engine::create(host_.device(), host_.pool(), {.prefix_cache = true}).value()) {
    model_.spec.max_position = 512;
    HEDDLE_CHECK(
        engine_->add_model(kModel, model_.spec, model_.layout, model_.window.base(), kKvLease)
            .has_value());
    engine_->set_image_ready(kModel, model_.layout.bytes);
  }

  SequenceStart start() const {
    SequenceStart start{.id = kSequence, .model = kModel, .prompt_tokens = kPrompt};
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      start.tokens.push_back(static_cast<TokenId>((i * 37 + 11) % model_.spec.vocab));
    }
    start.params.max_tokens = kAnswer;
    start.params.logprobs = 2;
    return start;
  }

  SliceResult step(std::int64_t tokens) {
    const auto outcome = engine_->run(
        {.batches = {{.model = kModel, .slices = {{.sequence = kSequence, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    return outcome->results[0];
  }

  /// Reads the prompt and generates; `before` is called before each token but the first.
  template <class Before>
  std::vector<SliceResult> generate(const Before& before) {
    HEDDLE_CHECK(engine_->add_sequence(start()).has_value());
    std::vector<SliceResult> results{step(kPrompt)};
    while (results.back().finish == spec::FinishReason::kNone) {
      before(std::ssize(results));
      results.push_back(step(1));
    }
    engine_->remove_sequence(kSequence);
    return results;
  }

  void lend(std::int64_t pages) {
    const auto taken = host_.pool().take(kHostLease, pages).value();
    HEDDLE_CHECK(engine_->guests().lend(kModel, taken).has_value());
  }

  static void expect_same(const std::vector<SliceResult>& a, const std::vector<SliceResult>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].token, b[i].token) << i;
      ASSERT_EQ(a[i].details.logprobs, b[i].details.logprobs) << i;
    }
  }

  TestHost host_{4096, 4096};
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(GuestsTest, WhatIsAwayChangesNoTokenAndNoLogProbability) {
  const auto alone = generate([](std::int64_t) {});
  lend(400);
  InlineHost host;
  engine_->guests().set_host(kModel, &host);
  const auto woven = generate([this](std::int64_t token) {
    const std::int64_t pages = engine_->kv_pages(kModel);
    if (token == 3) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 130).value(), 128);
      EXPECT_LT(engine_->kv_pages(kModel), pages) << "its pages here are free";
      EXPECT_GT(engine_->guests().used_pages(kModel), 0);
    } else if (token == 9) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 300 - 40).value(), 256);
    } else if (token == 15) {
      ASSERT_TRUE(engine_->guests().move_home(kSequence));
      EXPECT_EQ(engine_->guests().tokens(kSequence), 0);
      EXPECT_EQ(engine_->guests().used_pages(kModel), 0);
    } else if (token == 18) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
    }
  });
  expect_same(alone, woven);
  EXPECT_FALSE(host.steps.empty());
  EXPECT_EQ(host.steps.front().size(), 1U);
  EXPECT_EQ(host.steps.front()[0].border, 128);
  EXPECT_EQ(engine_->guests().used_pages(kModel), 0) << "the sequence has gone";
  EXPECT_EQ(std::ssize(engine_->guests().give_back(kModel, 1000)), 400);
  EXPECT_EQ(engine_->guests().lent_pages(kModel), 0);
}

TEST_P(GuestsTest, APreemptedSequenceGivesUpItsGuestsAndComputesThemAgain) {
  const auto alone = generate([](std::int64_t) {});
  lend(400);
  std::vector<SliceResult> woven;
  ASSERT_TRUE(engine_->add_sequence(start()));
  woven.push_back(step(kPrompt));
  ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
  woven.push_back(step(1));
  engine_->preempt(kSequence);
  EXPECT_EQ(engine_->guests().used_pages(kModel), 0);
  woven.push_back(step(kPrompt + 2));
  while (woven.back().finish == spec::FinishReason::kNone) {
    woven.push_back(step(1));
  }
  engine_->remove_sequence(kSequence);
  expect_same(alone, woven);
}

TEST_P(GuestsTest, WithoutRoomNothingMoves) {
  ASSERT_TRUE(engine_->add_sequence(start()));
  EXPECT_EQ(engine_->guests().move_out(kSequence, 256).value(), 0) << "it has computed nothing";
  step(kPrompt);
  const std::int64_t pages = engine_->kv_pages(kModel);
  const auto refused = engine_->guests().move_out(kSequence, 256);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(engine_->kv_pages(kModel), pages);
  lend(400);
  ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
  const std::int64_t free = host_.pool().free_count();
  engine_->trim_cached(0, ledger::DropReason::kBound);
  const auto rest = host_.pool().take(kHostLease, host_.pool().free_count()).value();
  const auto home = engine_->guests().move_home(kSequence);
  ASSERT_FALSE(home);
  EXPECT_EQ(home.error().code, Code::kResourceExhausted);
  EXPECT_EQ(engine_->guests().tokens(kSequence), 256);
  host_.pool().put(kHostLease, rest);
  EXPECT_TRUE(engine_->guests().move_home(kSequence)) << free;
  engine_->remove_sequence(kSequence);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GuestsTest,
                         testing::Values("llama-gqa-sharded", "qwen2-window-types-new", "qwen3-5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle::engine
