#include "core/prefill_queue.h"

#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using policy::SequenceId;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr ModelId kA{1};
constexpr ModelId kB{2};

QueuedPrefill waits(std::uint64_t id, Duration prefill, Duration due) {
  return {.id = SequenceId(id), .model = kA, .due = Instant(due), .prefill = prefill};
}

TEST(PrefillQueue, GivesUpTheLongestWhereNotAllCanBeInTime) {
  PrefillQueue queue;
  const PrefillState state{.ahead = 10s};
  EXPECT_THAT(queue.pass(state, {waits(1, 3s, 4s), waits(2, 1s, 5s), waits(3, 2s, 5s)}),
              ElementsAre(SequenceId(2), SequenceId(3)))
      << "with the first beside them, the others' step would end too late";
  EXPECT_THAT(queue.pass(state, {waits(1, 3s, 4s)}), ElementsAre(SequenceId(1)));
}

TEST(PrefillQueue, AdmitsNoMoreThanTheEngineRunsAtOnce) {
  PrefillQueue queue;
  const std::vector<QueuedPrefill> waiting = {waits(1, 2s, 50s), waits(2, 2s, 60s)};
  EXPECT_THAT(queue.pass({.ahead = 1s}, waiting), ElementsAre(SequenceId(1)));
  EXPECT_THAT(queue.pass({.dispatched = 1s, .ahead = 1s}, waiting), IsEmpty());
}

TEST(PrefillQueue, PrioritiesGoOneAfterTheOtherAndLateOnesOfTheFirstBeforeAllOfTheNext) {
  PrefillQueue queue;
  std::vector<QueuedPrefill> waiting = {waits(1, 1s, 2s), waits(2, 1s, 9s), waits(3, 5s, 1s)};
  waiting[1].priority = -1;
  waiting[2].priority = -1;
  EXPECT_THAT(queue.pass({.ahead = 10s}, waiting),
              ElementsAre(SequenceId(3), SequenceId(2), SequenceId(1)))
      << "the second has time for the third, which is late";
}

TEST(PrefillQueue, ClientsTakeTurns) {
  PrefillQueue queue;
  std::vector<QueuedPrefill> waiting;
  for (std::uint64_t id = 1; id <= 3 * PrefillQueue::kTurn; ++id) {
    waiting.push_back(waits(id, 1ms, 1s + id * 1ms));
    waiting.back().client = 7;
  }
  waiting.push_back(waits(100, 1ms, 5s));
  const std::vector<SequenceId> admitted = queue.pass({.ahead = 1s}, waiting);
  ASSERT_EQ(admitted.size(), waiting.size());
  EXPECT_EQ(admitted[PrefillQueue::kTurn], SequenceId(100))
      << "due last, but only so many of another client go before it";

  waiting.back().client = 7;
  EXPECT_EQ(PrefillQueue().pass({.ahead = 1s}, waiting).back(), SequenceId(100));
}

// Only one goes at a time, so that most of the crowd waits still as the other client comes.
TEST(PrefillQueue, WhoComesLateJoinsTheTurnThatIsOn) {
  PrefillQueue queue;
  std::vector<QueuedPrefill> waiting;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    waiting.push_back(waits(id, 1s, 900s + id * 1s));
    waiting.back().client = 7;
  }
  std::map<SequenceId, int> gone_at;
  for (int pass = 0; !waiting.empty(); ++pass) {
    if (pass == 20) {
      for (std::uint64_t id = 201; id <= 210; ++id) {
        waiting.push_back(waits(id, 1s, 2000s));
      }
    }
    const auto admitted = queue.pass({.ahead = Duration{1}}, waiting);
    ASSERT_EQ(admitted.size(), 1U) << pass;
    gone_at[admitted[0]] = pass;
    std::erase_if(waiting, [&](const QueuedPrefill& entry) { return entry.id == admitted[0]; });
  }
  EXPECT_EQ(gone_at.at(SequenceId(20)), 19) << "before the other client came: by deadline";
  EXPECT_LE(gone_at.at(SequenceId(201)), 20 + 4);
  EXPECT_LE(gone_at.at(SequenceId(210)), 20 + 2 * 12 + 4) << "its third turn";
  EXPECT_LE(gone_at.at(SequenceId(32)), 19 + 12 + 10 + 4) << "nor does it hold up the first";
}

TEST(PrefillQueue, OneClientAloneIsServedByDeadlinesOnly) {
  PrefillQueue queue;
  std::vector<QueuedPrefill> waiting;
  for (std::uint64_t id = 1; id <= 2 * PrefillQueue::kTurn; ++id) {
    waiting.push_back(waits(id, 10s, 1s));
  }
  waiting.push_back(waits(100, 1s, 2s));
  EXPECT_EQ(queue.pass({.ahead = 1s}, waiting).front(), SequenceId(100))
      << "all others are late anyway";
}

TEST(PrefillQueue, WhoDoesNotFitHoldsUpItsOwnModelInLaterPrioritiesToo) {
  PrefillQueue queue;
  std::vector<QueuedPrefill> waiting = {waits(1, 1s, 5s), waits(2, 1s, 9s), waits(3, 1s, 9s)};
  waiting[0].kv_pages = 8;
  waiting[1].priority = 1;
  waiting[2].priority = 1;
  waiting[2].model = kB;
  EXPECT_THAT(queue.pass({.ahead = 10s, .free_pages = 7}, waiting), ElementsAre(SequenceId(3)));
}

// A stream of small requests of another model, all in time, never leaves the pages free that a
// large one waits for, unless it gets its turn.
TEST(PrefillQueue, WhoIsOverdueForWantOfPagesGetsThemInTheEnd) {
  PrefillQueue queue;
  QueuedPrefill large = waits(1, 100ms, 1s);
  large.kv_pages = 8;
  std::map<std::uint64_t, Instant> ends;  // Of small ones that run.
  std::uint64_t ids = 1;
  Instant now{};
  for (int i = 0; i < 2000; ++i, now += 10ms) {
    std::erase_if(ends, [&](const auto& entry) { return entry.second <= now; });
    QueuedPrefill small = waits(++ids, 10ms, now.time_since_epoch() + 1s);
    small.model = kB;
    small.kv_pages = 1;
    const std::int64_t free_pages = 8 - std::ssize(ends);
    for (const SequenceId id :
         queue.pass({.now = now, .ahead = 1s, .free_pages = free_pages}, {large, small})) {
      if (id == large.id) {
        EXPECT_GT(now, large.due);
        return;
      }
      ends[id.value()] = now + 50ms;
    }
  }
  FAIL() << "it waits still";
}

/// One engine that reads prompts of two models one after the other and whose KV is not scarce.
struct Outcome {
  std::int64_t on_time = 0;
  Instant last_admitted{};
};
Outcome play(std::vector<QueuedPrefill> arrivals, bool by_deadline) {
  std::sort(arrivals.begin(), arrivals.end(), [](const auto& a, const auto& b) {
    return std::tie(a.arrived, a.id) < std::tie(b.arrived, b.id);
  });
  PrefillQueue queue;
  Outcome outcome;
  Instant now{};
  std::vector<QueuedPrefill> waiting;
  auto next = arrivals.begin();
  while (next != arrivals.end() || !waiting.empty()) {
    if (waiting.empty()) {
      now = std::max(now, next->arrived);
    }
    for (; next != arrivals.end() && next->arrived <= now; ++next) {
      waiting.push_back(*next);
    }
    SequenceId chosen = waiting.front().id;  // First come, first served.
    if (by_deadline) {
      const auto admitted = queue.pass({.now = now, .ahead = Duration{1}}, waiting);
      EXPECT_EQ(admitted.size(), 1U);
      chosen = admitted.front();
    }
    const auto found = std::find_if(
        waiting.begin(), waiting.end(), [&](const auto& entry) { return entry.id == chosen; });
    outcome.last_admitted = std::max(outcome.last_admitted, now);
    now += found->prefill;
    outcome.on_time += now <= found->due ? 1 : 0;
    waiting.erase(found);
  }
  return outcome;
}

// All that arrive at once: no order serves more in time, least of all that of arrival. Random
// bursts beyond what can be served: the same on the whole, and nobody is left behind.
TEST(PrefillQueue, ServesNoFewerInTimeThanFirstComeFirstServed) {
  std::int64_t by_deadline = 0;
  std::int64_t by_arrival = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const bool at_once = seed % 2 == 0;
    std::vector<QueuedPrefill> arrivals;
    Duration work{};
    for (std::uint64_t id = 1; id <= 30; ++id) {
      const Instant arrived{at_once ? 0ms : 1ms * static_cast<int>(rng.below(3000))};
      const Duration prefill = 10ms * static_cast<int>(1 + rng.below(40));
      arrivals.push_back({.id = SequenceId(id),
                          .model = rng.below(2) == 0 ? kA : kB,
                          .arrived = arrived,
                          .due = arrived + 10ms * static_cast<int>(20 + rng.below(200)),
                          .prefill = prefill});
      work += prefill;
    }
    const Outcome deadline = play(arrivals, true);
    const Outcome arrival = play(arrivals, false);
    if (at_once) {
      EXPECT_GE(deadline.on_time, arrival.on_time);
    }
    EXPECT_LE(deadline.last_admitted, Instant(3s) + work);
    by_deadline += deadline.on_time;
    by_arrival += arrival.on_time;
  }
  EXPECT_GT(2 * by_deadline, 3 * by_arrival) << by_deadline << " and " << by_arrival;
}

}  // namespace
}  // namespace heddle::core
