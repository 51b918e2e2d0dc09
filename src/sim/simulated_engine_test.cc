#include "sim/simulated_engine.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/test_hardware.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

/// So many blocks and no more.
class FixedBudget final : public KvBudget {
 public:
  explicit FixedBudget(std::int64_t blocks) : blocks_(blocks) {}
  std::int64_t reserve(KvPlace /*place*/, std::int64_t want, bool /*whole*/) override {
    peak_ = std::max(peak_, std::min(want, blocks_));
    return std::min(want, blocks_);
  }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  std::int64_t blocks_;
  std::int64_t peak_ = 0;
};

struct Times {
  Instant first{};
  Instant finished{};
  friend bool operator==(const Times&, const Times&) = default;
};

struct Replay {
  std::map<SequenceId, Times> times{};
  std::int64_t runs = 0;
  std::int64_t preemptions = 0;
};

/// Feeds sequences at their arrival and runs until all are done, settling now and then.
Replay replay(const std::vector<Sequence>& arrivals,
              const EngineOptions& options,
              std::int64_t blocks,
              Duration settle_every = {}) {
  const StepModel model(
      test_llama_8b(), test_h100(), 1, {.fixed = 0.5e-3, .cpu_per_sequence = 1e-5});
  SimulatedEngine engine(model, options);
  FixedBudget budget(blocks);
  Replay result;
  std::size_t next = 0;
  Instant settled{};
  while (next < arrivals.size() || engine.load() > 0) {
    const std::optional<Instant> boundary = engine.boundary();
    const bool arrives =
        next < arrivals.size() && (!boundary || arrivals[next].arrived < *boundary);
    if (arrives) {
      engine.add(arrivals[next].arrived, arrivals[next]);
      ++next;
      continue;
    }
    if (!boundary) {
      ADD_FAILURE() << "it has work and does nothing";
      return result;
    }
    while (settle_every > Duration{} && settled + settle_every < *boundary) {
      settled += settle_every;
      engine.settle(settled);
    }
    EngineOutputs outputs;
    engine.finish_run(*boundary, budget, outputs);
    engine.check_invariants();
    ++result.runs;
    result.preemptions += static_cast<std::int64_t>(outputs.preempted.size());
    for (const SequenceId id : outputs.first_tokens) {
      result.times[id].first = *boundary;
    }
    for (const SequenceId id : outputs.finished) {
      result.times[id].finished = *boundary;
    }
  }
  return result;
}

std::vector<Sequence> random_arrivals(Rng& rng, std::size_t count) {
  std::vector<Sequence> arrivals;
  Instant at{};
  for (std::size_t i = 0; i < count; ++i) {
    at += Duration(static_cast<std::int64_t>(rng.below(200'000'000)));
    arrivals.push_back({.id = SequenceId(i),
                        .arrived = at,
                        .prompt = 1 + static_cast<std::int64_t>(rng.below(3000)),
                        .generate = static_cast<std::int64_t>(rng.below(300))});
  }
  return arrivals;
}

TEST(Engine, OneRequestTakesItsPrefillAndItsSteps) {
  const Replay result = replay({{.id = SequenceId(1), .prompt = 128, .generate = 3}}, {}, 1000);
  const StepModel model(
      test_llama_8b(), test_h100(), 1, {.fixed = 0.5e-3, .cpu_per_sequence = 1e-5});
  const std::int64_t prefill =
      model.base_ps(128, 1) + model.chunk_ps({.tokens = 128}) + 500'000'000;
  const auto decode = [&](std::int64_t context) {
    return (model.base_ps(1, 1) + model.decode_ps() + context * model.context_ps() + 500'000'000) /
               1000 +
           10'000;
  };
  const Times& times = result.times.at(SequenceId(1));
  EXPECT_EQ(times.first, Instant(Duration(prefill / 1000 + 10'000)));
  EXPECT_EQ(times.finished - times.first, Duration(decode(129) + decode(130)));
  EXPECT_EQ(result.runs, 3);  // Begin, prefill, both decodes.
}

// The heart of the speed: runs of iterations and single iterations agree to the nanosecond.
TEST(Engine, RunsAreSteppingToTheNanosecond) {
  std::int64_t run_count = 0;
  std::int64_t step_count = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    const std::vector<Sequence> arrivals = random_arrivals(rng, 60);
    const std::int64_t blocks = seed % 2 == 0 ? 100'000 : 900;
    const EngineOptions options{.max_sequences = 16, .max_batch_tokens = 512};
    EngineOptions stepping = options;
    stepping.grow_ahead = 1;
    const Replay runs = replay(arrivals, options, blocks);
    const Replay steps = replay(arrivals, stepping, blocks);
    ASSERT_EQ(runs.times.size(), arrivals.size()) << "seed " << seed;
    ASSERT_EQ(runs.times, steps.times) << "seed " << seed;
    run_count += runs.runs;
    step_count += steps.runs;
  }
  EXPECT_LT(run_count * 2, step_count);
}

// Only the last token of the prompt is computed here: both tokens of the answer take a decode step.
TEST(Engine, APromptReadElsewhereCostsNoTime) {
  const Replay result = replay(
      {{.id = SequenceId(1), .prompt = 128, .generate = 2}}, {.prompts_elsewhere = true}, 1000);
  const StepModel model(
      test_llama_8b(), test_h100(), 1, {.fixed = 0.5e-3, .cpu_per_sequence = 1e-5});
  const auto decode = [&](std::int64_t context) {
    return Duration(
        (model.base_ps(1, 1) + model.decode_ps() + context * model.context_ps() + 500'000'000) /
            1000 +
        10'000);
  };
  const Times& times = result.times.at(SequenceId(1));
  EXPECT_EQ(times.first, Instant(decode(128)));
  EXPECT_EQ(times.finished - times.first, decode(129));
}

TEST(Engine, APromptsLastTokenAloneIsAFirstTokenAllTheSame) {
  for (const std::int64_t prompt : {1, 513}) {
    const Replay result = replay({{.id = SequenceId(1), .prompt = prompt, .generate = 100}},
                                 {.max_batch_tokens = 512},
                                 1000);
    const Times& times = result.times.at(SequenceId(1));
    EXPECT_LT(times.first, Instant(80ms)) << prompt;
    EXPECT_GT(times.finished, Instant(500ms)) << prompt;
  }
}

// Looking closely changes nothing.
TEST(Engine, SettlingAtAnyMomentLeavesAllTimesAsTheyAre) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const std::vector<Sequence> arrivals = random_arrivals(rng, 60);
    const Replay plain = replay(arrivals, {.max_sequences = 16}, 900);
    ASSERT_EQ(replay(arrivals, {.max_sequences = 16}, 900, 7ms).times, plain.times)
        << "seed " << seed;
  }
}

TEST(Engine, WhatIsTakenAwayHasTheTokensItWasGiven) {
  const StepModel model(test_llama_8b(), test_h100(), 1, {});
  SimulatedEngine engine(model, {});
  FixedBudget budget(10'000);
  EngineOutputs outputs;
  engine.add(Instant{}, {.id = SequenceId(0), .prompt = 64, .generate = 1000});
  engine.finish_run(Instant{}, budget, outputs);
  const Instant first = *engine.boundary();
  engine.finish_run(first, budget, outputs);
  const Duration step = engine.step();
  const std::vector<Sequence> taken = engine.take_all(first + 10 * step + step / 2);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].generated, 11);
  EXPECT_EQ(taken[0].computed, 0);
}

TEST(Engine, EverythingFinishesInLittleMemory) {
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    const std::vector<Sequence> arrivals = random_arrivals(rng, 80);
    const Replay result = replay(arrivals, {}, 210);  // Hardly more than the longest request.
    ASSERT_EQ(result.times.size(), arrivals.size()) << "seed " << seed;
    preemptions += result.preemptions;
  }
  EXPECT_GT(preemptions, 100);
}

TEST(Engine, ALongPromptGoesInChunksBesideDecodes) {
  std::vector<Sequence> arrivals{
      {.id = SequenceId(0), .prompt = 16, .generate = 500},
      {.id = SequenceId(1), .arrived = Instant(100ms), .prompt = 8192, .generate = 2}};
  const Replay chunked = replay(arrivals, {.max_batch_tokens = 512}, 100'000);
  const Replay whole = replay(arrivals, {.max_batch_tokens = 16384}, 100'000);
  const auto first = [](const Replay& result) { return result.times.at(SequenceId(1)).first; };
  EXPECT_GT(chunked.runs, whole.runs + 12);
  EXPECT_GT(first(chunked), first(whole));  // Weights are read once a chunk.
}

TEST(Engine, AnArrivalJoinsAtTheEndOfTheStep) {
  const StepModel model(test_llama_8b(), test_h100(), 1, {});
  SimulatedEngine engine(model, {});
  FixedBudget budget(10'000);
  EngineOutputs outputs;
  engine.add(Instant{}, {.id = SequenceId(0), .prompt = 64, .generate = 1000});
  engine.finish_run(Instant{}, budget, outputs);
  const Instant decoding = *engine.boundary();
  engine.finish_run(decoding, budget, outputs);
  const Instant far = *engine.boundary();
  const Instant arrival = decoding + 100ms;
  engine.add(arrival, {.id = SequenceId(1), .arrived = arrival, .prompt = 64, .generate = 1});
  EXPECT_LT(*engine.boundary(), far);
  EXPECT_GE(*engine.boundary(), arrival);
  EXPECT_LT(*engine.boundary() - arrival, 10ms);
}

TEST(Engine, ZeroOutputEndsWithItsPrompt) {
  const Replay result = replay({{.id = SequenceId(1), .prompt = 8, .generate = 0}}, {}, 1000);
  EXPECT_GT(result.times.at(SequenceId(1)).finished, Instant{});
}

TEST(Engine, CoRunnersAddTheirGpuTimeOnceLaunchesAreHidden) {
  const StepModel model(
      test_llama_8b(), test_h100(), 1, {.fixed = 2.5e-3, .launch_per_layer = 0.345e-3});
  const auto step = [&](std::int64_t neighbours) {
    SimulatedEngine engine(model, {});
    FixedBudget budget(10'000);
    EngineOutputs outputs;
    engine.set_neighbours(neighbours);
    engine.add(Instant{}, {.id = SequenceId(0), .prompt = 1, .generate = 100});
    engine.finish_run(Instant{}, budget, outputs);
    return std::pair(engine.step(), engine.gpu_ps());
  };
  EXPECT_EQ(step(0).first, Duration(11'040'000));  // 0.345 ms x 32 layers.
  const auto [shared, own] = step(13'000'000'000);
  EXPECT_EQ(shared, Duration((own + 13'000'000'000) / 1000));
}

TEST(Engine, AGuestsAttentionIsHiddenWhileItIsShorter) {
  const StepModel model(test_llama_8b(), test_h100(), 1, {});
  const auto step = [&](std::int64_t guests, std::int64_t wait_ps) {
    SimulatedEngine engine(model, {});
    FixedBudget budget(100'000);
    EngineOutputs outputs;
    engine.set_guest_cost({.per_layer_ps = wait_ps, .context_ps = model.context_ps()});
    for (std::int64_t i = 0; i < 32; ++i) {
      engine.add(Instant{},
                 {.id = SequenceId(static_cast<std::uint64_t>(i)),
                  .prompt = 1024,
                  .generate = 100,
                  .place = i < guests ? KvPlace::kGuest : KvPlace::kOwn});
    }
    Instant now{};
    while (engine.running() < 32 || engine.prefilling()) {
      engine.finish_run(now, budget, outputs);
      now = *engine.boundary();
    }
    return engine.step();
  };
  EXPECT_LT(step(16, 0), step(0, 0));  // Half of the attention is elsewhere.
  EXPECT_LT(step(16, 0), step(4, 0));
  EXPECT_GT(step(16, 500'000'000), step(0, 0));  // A slow host costs more than it saves.
}

/// So many blocks at home, and so many lent.
class LentBudget final : public KvBudget {
 public:
  LentBudget(std::int64_t home, std::int64_t lent) : blocks_{home, lent} {}
  std::int64_t reserve(KvPlace place, std::int64_t want, bool /*whole*/) override {
    return std::min(want, at(place));
  }
  [[nodiscard]] KvRoom room(KvPlace place) const override {
    return {.mine = at(place), .all = at(place)};
  }

 private:
  [[nodiscard]] std::int64_t at(KvPlace place) const {
    return blocks_.at(static_cast<std::size_t>(place));
  }
  std::array<std::int64_t, kKvPlaces> blocks_;
};

/// Four sequences that will need 4 x 100 blocks, of which home has 300.
class Lent : public testing::Test {
 protected:
  explicit Lent(std::int64_t lent = 200) : budget_(300, lent) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      engine_.add(Instant{}, {.id = SequenceId(i), .prompt = 800, .generate = 800});
    }
  }
  /// Runs until `tokens` have been computed in all; the most that were away.
  std::int64_t run(std::int64_t tokens) {
    std::int64_t away = 0;
    while (engine_.boundary() && engine_.tokens_done() < tokens) {
      now_ = *engine_.boundary();
      engine_.finish_run(now_, budget_, outputs_);
      engine_.check_invariants();
      away = std::max(away, engine_.blocks(KvPlace::kGuest));
    }
    return away;
  }

  StepModel model_{test_llama_8b(), test_h100(), 1, {}};
  SimulatedEngine engine_{model_, {}};
  LentBudget budget_;
  EngineOutputs outputs_{};
  Instant now_{};
};

TEST_F(Lent, FirstPositionsMoveSoThatNobodyIsPreempted) {
  const std::int64_t most = run(INT64_MAX);
  EXPECT_EQ(outputs_.finished.size(), 4U);
  EXPECT_TRUE(outputs_.preempted.empty());
  EXPECT_GE(most, 100) << "what home has not";
  EXPECT_LE(most, 200) << "a half of all stays";
  EXPECT_EQ(engine_.tokens_done(), 4 * (800 + 799)) << "nothing was computed twice";
  EXPECT_GE(outputs_.moved, 16 * most);
}

TEST_F(Lent, MovesTakeTimeBetweenSteps) {
  engine_.set_guest_cost({.move_ps = 1'000'000'000});  // 1 ms for a token.
  run(INT64_MAX);
  SimulatedEngine quick(model_, {});
  for (std::uint64_t i = 0; i < 4; ++i) {
    quick.add(Instant{}, {.id = SequenceId(i), .prompt = 800, .generate = 800});
  }
  LentBudget budget(300, 200);
  EngineOutputs outputs;
  Instant end{};
  while (quick.boundary()) {
    end = *quick.boundary();
    quick.finish_run(end, budget, outputs);
  }
  EXPECT_EQ(outputs.moved, outputs_.moved);
  EXPECT_NEAR(to_seconds(now_ - end), 1e-3 * static_cast<double>(outputs.moved), 1e-5);
}

TEST_F(Lent, GuestsMoveHomeWhereThereIsRoom) {
  run(4 * 1100);
  const std::int64_t away = engine_.blocks(KvPlace::kGuest);
  ASSERT_GT(away, 0);
  engine_.return_guests(now_, INT64_MAX);
  EXPECT_EQ(engine_.blocks(KvPlace::kGuest), 0);
  EXPECT_EQ(engine_.running(), 4U);
  EXPECT_GE(engine_.blocks(KvPlace::kOwn), 4 * 1100 / 16);
}

TEST_F(Lent, GuestsWithoutRoomAreComputedAgain) {
  run(4 * 1100);
  ASSERT_GT(engine_.blocks(KvPlace::kGuest), 0);
  engine_.return_guests(now_, 0);
  EXPECT_EQ(engine_.blocks(KvPlace::kGuest), 0);
  EXPECT_GE(engine_.waiting(), 1U);
  engine_.check_invariants();
  EXPECT_EQ(engine_.waiting_sequences()[0].computed, 0);
  EXPECT_EQ(engine_.waiting_sequences()[0].away, 0);
}

class NothingLent : public Lent {
 protected:
  NothingLent() : Lent(0) {}
};

TEST_F(NothingLent, NobodyMoves) {
  EXPECT_EQ(run(INT64_MAX), 0);
  EXPECT_EQ(outputs_.moved, 0);
  EXPECT_EQ(outputs_.finished.size(), 4U);
  EXPECT_GT(engine_.tokens_done(), 0);
}

}  // namespace
}  // namespace heddle::sim
