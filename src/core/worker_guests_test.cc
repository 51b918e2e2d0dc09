#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "core/test_find.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kModel{1};

/// A WorkerCore with 40 pages, of which the model's weights take 8; a page has 32 tokens of KV. The
/// engine that it drives here does what it is told.
class GuestsOfAWorker : public testing::Test {
 protected:
  GuestsOfAWorker() {
    LoadModel load{.model = kModel,
                   .basis = {.epoch = WorkerEpoch(1)},
                   .image_bytes = 1000,
                   .ready_bytes = 1000,
                   .footprint = {.image_pages = 8,
                                 .min_kv_pages = 1,
                                 .kv = {{.tokens_per_block = 16, .blocks_per_page = 2}}}};
    load.pages.resize(8);
    tell(WorkerMessage{load});
    tell(ModelOpened{.model = kModel});
  }

  static std::int64_t pages(std::int64_t tokens) { return (tokens + 31) / 32; }

  /// Has the engine carry out what the core wants of it, and tell.
  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    std::vector<WorkerEvent> answers;
    for (const WorkerCommand& command : std::vector(commands)) {
      if (const auto* add = std::get_if<AddSequence>(&command)) {
        known[add->sequence] = std::ssize(add->tokens);
      } else if (const auto* out = std::get_if<MoveOut>(&command)) {
        away[out->sequence] = out->tokens / 16 * 16;
        answers.emplace_back(GuestsMoved{
            .sequence = out->sequence, .tokens = away[out->sequence], .counted = counted()});
      } else if (const auto* home = std::get_if<MoveHome>(&command)) {
        away.erase(home->sequence);
        answers.emplace_back(GuestsMoved{.sequence = home->sequence, .counted = counted()});
      } else if (const auto* preempt = std::get_if<PreemptSequence>(&command)) {
        away.erase(preempt->sequence);
        computed.erase(preempt->sequence);
      } else if (const auto* remove = std::get_if<RemoveSequence>(&command)) {
        away.erase(remove->sequence);
        computed.erase(remove->sequence);
        known.erase(remove->sequence);
      }
    }
    if (find<RemoveSequence>(commands) || find<PreemptSequence>(commands)) {
      answers.emplace_back(counted());
    }
    for (const WorkerEvent& answer : answers) {
      const auto more = tell(answer);
      commands.insert(commands.end(), more.begin(), more.end());
    }
    return commands;
  }
  [[nodiscard]] KvCounted counted() const {
    KvHeld held{.model = kModel};
    for (const auto& [id, tokens] : computed) {
      const std::int64_t guests = away.contains(id) ? away.at(id) : 0;
      held.pages += pages(tokens - guests);
      held.guest_pages += pages(guests);
    }
    return {.kv = {held}};
  }
  /// Runs a step if there is one; what the core wants, up to that.
  std::vector<WorkerCommand> idle() {
    std::vector<WorkerCommand> commands = tell(EngineIdle{});
    const auto* run = find<RunStep>(commands);
    if (run == nullptr) {
      return commands;
    }
    StepDone done{.took = 1ms + hosting, .hosting = hosting};
    for (const auto& slice : run->plan.batches.at(0).slices) {
      computed[slice.sequence] += slice.tokens;
      done.slices.push_back({.sequence = slice.sequence, .computed = computed[slice.sequence]});
      if (computed[slice.sequence] == known[slice.sequence]) {
        ++known[slice.sequence];
        done.slices.back().token = 5;
      }
    }
    done.counted = counted();
    done.guests = times;
    tell(done);
    return commands;
  }
  void submit(std::uint64_t request, std::size_t prompt) {
    Submit submit{.request = RequestId(request), .model = kModel, .due = 10s};
    submit.prompt.resize(prompt, 7);
    submit.choices.resize(1);
    submit.choices[0].params.max_tokens = 400;
    tell(WorkerMessage{submit});
  }
  /// Four requests that fill the device, all of them decoding.
  void fill() {
    for (std::uint64_t request = 1; request <= 4; ++request) {
      now += 1ms;
      submit(request, 224);
    }
    for (int i = 0; i < 8; ++i) {
      idle();
    }
    ASSERT_EQ(computed.size(), 4U);
  }
  std::vector<WorkerCommand> lend(std::uint64_t count) {
    LendGuests lend{.model = kModel};
    for (std::uint64_t i = 0; i < count; ++i) {
      lend.pages.emplace_back(100 + i);
    }
    return tell(WorkerMessage{lend});
  }

  Instant now{1s};
  WorkerCore core{WorkerOptions{
      .epoch = WorkerEpoch(1), .pages = 40, .step = {.budget = 10ms, .max_batch_tokens = 256}}};
  std::map<SequenceId, std::int64_t> known{};
  std::map<SequenceId, std::int64_t> computed{};
  std::map<SequenceId, std::int64_t> away{};
  GuestTimes times{};  ///< That steps say.
  Duration hosting{};  ///< What they did for guests of others.
};

TEST_F(GuestsOfAWorker, KvGoesToLentPagesWhereTheDeviceIsShortOfIt) {
  fill();
  submit(5, 224);
  EXPECT_EQ(core.report().short_sequences, 1);
  EXPECT_NE(find<TakeGuestPages>(lend(20)), nullptr);
  const auto commands = idle();
  ASSERT_NE(find<MoveOut>(commands), nullptr);
  EXPECT_EQ(find<RunStep>(commands), nullptr) << "first it is counted what that freed";
  EXPECT_GT(core.report().models.at(0).guest_pages, 0);
  EXPECT_EQ(core.report().models.at(0).lent_pages, 20);
  for (int i = 0; i < 10; ++i) {
    idle();
  }
  EXPECT_EQ(computed.size(), 5U) << "who waited runs, and nobody was preempted for it";
}

TEST_F(GuestsOfAWorker, NothingMovesWithoutShortage) {
  submit(1, 224);
  lend(20);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(find<MoveOut>(idle()), nullptr);
  }
}

TEST_F(GuestsOfAWorker, WhatAttentionTakesAndAHostLosesIsTold) {
  fill();
  submit(5, 224);
  lend(20);
  idle();
  ASSERT_FALSE(away.empty());
  EXPECT_EQ(core.report().models.at(0).attention, 0ms) << "nobody has measured";
  const auto positions = [this] {
    std::int64_t all = 0;
    for (const auto& [id, tokens] : computed) {
      all += tokens;
    }
    return all;
  };
  for (int i = 0; i < 10 && core.report().models.at(0).attention == 0ms; ++i) {
    std::int64_t there = 0;
    for (const auto& [id, tokens] : away) {
      there += tokens;
    }
    // A microsecond a position, and then the host is waited for.
    const std::int64_t here = positions() - there;
    times = {.home = std::chrono::microseconds(here), .positions = here, .waited = 300us};
    idle();
  }
  const ResidentReport report = core.report().models.at(0);
  EXPECT_NEAR(to_seconds(report.attention), 1e-6 * static_cast<double>(positions()), 5e-6);
  EXPECT_NEAR(to_seconds(report.guest_loss), 300e-6, 5e-6);
}

TEST_F(GuestsOfAWorker, WhatAStepTakesIsToldWithoutWhatItDidForGuestsOfOthers) {
  EXPECT_EQ(core.report().step, 0ms);
  hosting = 300us;
  submit(1, 224);
  idle();
  const Duration alone = core.report().step;
  EXPECT_EQ(alone, 1ms);
  for (int i = 0; i < 200; ++i) {
    hosting = 300us + std::chrono::microseconds(i);
    idle();
  }
  EXPECT_EQ(core.report().step, alone);
}

TEST_F(GuestsOfAWorker, WhatPromptsTakeOfItsTimeIsTold) {
  submit(1, 224);
  EXPECT_EQ(core.report().models.at(0).reading, 0);
  idle();
  const double once = core.report().models.at(0).reading;
  EXPECT_GT(once, 0);
  EXPECT_LE(once, 1.0 / 32);
  idle();
  EXPECT_LT(core.report().models.at(0).reading, once) << "it only decodes";
}

TEST_F(GuestsOfAWorker, WhatIsRecalledComesBackBeforeTheNextStep) {
  fill();
  submit(5, 224);
  lend(20);
  idle();
  const std::int64_t used = core.report().models.at(0).guest_pages;
  ASSERT_GT(used, 0);
  tell(WorkerMessage{RecallGuests{.model = kModel, .count = 20}});
  std::int64_t returned = 0;
  for (int i = 0; i < 20 && returned < 20; ++i) {
    const auto commands = idle();
    for (const WorkerCommand& command : commands) {
      if (const auto* back = std::get_if<ReturnGuestPages>(&command)) {
        returned += back->count;
      }
    }
    ASSERT_TRUE(find<RunStep>(commands) == nullptr || returned == 20);
  }
  EXPECT_EQ(returned, 20);
  EXPECT_EQ(core.report().models.at(0).lent_pages, 0);
  for (int i = 0; i < 5; ++i) {
    idle();
  }
  EXPECT_TRUE(
      computed.contains(core.report().models.empty() ? SequenceId{} : computed.begin()->first));
  EXPECT_TRUE(away.empty());
}

TEST_F(GuestsOfAWorker, AModelThatLeavesGivesThemBackFirst) {
  lend(20);
  const auto commands = tell(WorkerMessage{
      EvictModel{.model = kModel, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
  const auto at = [&](auto is) { return std::ranges::find_if(commands, is) - commands.begin(); };
  const auto back = at([](const auto& c) { return std::holds_alternative<ReturnGuestPages>(c); });
  const auto close = at([](const auto& c) { return std::holds_alternative<CloseModel>(c); });
  EXPECT_LT(back, close);
  ASSERT_LT(close, std::ssize(commands));
  EXPECT_EQ(find<ReturnGuestPages>(commands)->count, 20);
}

TEST_F(GuestsOfAWorker, PagesForAModelThatIsGoneGoBackAtOnce) {
  tell(WorkerMessage{
      EvictModel{.model = kModel, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
  tell(ModelClosed{.model = kModel});
  const auto commands = lend(3);
  EXPECT_EQ(find<TakeGuestPages>(commands), nullptr);
  ASSERT_NE(find<GuestsReturned>(commands), nullptr);
  EXPECT_EQ(find<GuestsReturned>(commands)->pages.size(), 3U);
}

}  // namespace
}  // namespace heddle::core
