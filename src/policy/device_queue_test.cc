#include "policy/device_queue.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{100s};
constexpr QueueOptions kAll{.ahead = 1h};

QueuedRequest request(std::uint64_t id, Duration deadline, Duration prefill) {
  return {.id = RequestId(id),
          .model = ModelId(id % 3),
          .arrived = kNow,
          .deadline = kNow + deadline,
          .prefill = prefill,
          .kv_pages = 1};
}

QueuePlan plan(const std::vector<QueuedRequest>& requests, const QueueOptions& options = kAll) {
  return plan_queue({.now = kNow, .free_pages = 1000, .requests = requests}, options);
}

std::vector<RequestId> ids(std::initializer_list<std::uint64_t> values) {
  std::vector<RequestId> out;
  for (const std::uint64_t value : values) {
    out.emplace_back(value);
  }
  return out;
}

/// Requests in time when served in this order.
int on_time(const std::vector<QueuedRequest>& order) {
  Instant t = kNow;
  int count = 0;
  for (const QueuedRequest& r : order) {
    t += r.prefill;
    count += t <= r.deadline ? 1 : 0;
  }
  return count;
}

/// The most that any order brings in time: some subset by deadline.
int most_on_time(std::vector<QueuedRequest> requests) {
  std::sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return a.deadline < b.deadline;
  });
  int best = 0;
  for (std::uint32_t mask = 0; mask < 1U << requests.size(); ++mask) {
    std::vector<QueuedRequest> chosen;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if ((mask >> i & 1U) != 0) {
        chosen.push_back(requests[i]);
      }
    }
    if (on_time(chosen) == static_cast<int>(chosen.size())) {
      best = std::max(best, static_cast<int>(chosen.size()));
    }
  }
  return best;
}

// As in the overload of the reference: ten jobs, deadlines between 0.2 and 3 s.
std::vector<QueuedRequest> overload(Rng& rng) {
  constexpr std::array kLengths = {50ms, 100ms, 200ms, 500ms, 1000ms};
  std::vector<QueuedRequest> requests;
  for (std::uint64_t i = 0; i < 10; ++i) {
    requests.push_back(request(i, 200ms + 1ms * rng.below(2800), kLengths[rng.below(5)]));
    requests.back().arrived = kNow - 1ms * rng.below(2000);
  }
  return requests;
}

TEST(PlanQueue, ServesByDeadlineWhenEverythingIsInTime) {
  const QueuePlan p = plan({request(1, 3s, 1s), request(2, 1s, 1s), request(3, 2s, 1s)});
  EXPECT_EQ(p.dispatch, ids({2, 3, 1}));
  EXPECT_EQ(p.on_time.back(), (PlannedRequest{RequestId(1), kNow + 3s}));
  EXPECT_TRUE(p.refused.empty() && p.late.empty() && p.blocked.empty());
}

TEST(PlanQueue, GivesUpTheLongestWhichMayBeTheNewest) {
  // 1 + 3 + 1 passes the deadline of the third; without the second both others are in time.
  const QueuePlan p = plan({request(1, 1s, 1s), request(2, 4s, 3s), request(3, 4500ms, 1s)});
  EXPECT_EQ(p.refused, ids({2}));
  EXPECT_EQ(p.dispatch, ids({1, 3, 2})) << "what is late is served after what is in time";
  const QueuePlan newest = plan({request(1, 1s, 1s), request(2, 2s, 5s)});
  EXPECT_EQ(newest.refused, ids({2}));
}

TEST(PlanQueue, OfEquallyLongOnesGivesUpTheLaterDeadline) {
  const QueuePlan p = plan({request(1, 1s, 1s), request(2, 1500ms, 1s), request(3, 1700ms, 100ms)});
  EXPECT_EQ(p.refused, ids({2}));
}

TEST(PlanQueue, TimeStartsBehindWhatWasDispatched) {
  const std::vector<QueuedRequest> requests = {request(1, 1s, 600ms)};
  const QueueView view{.now = kNow, .dispatched = 500ms, .free_pages = 9, .requests = requests};
  EXPECT_EQ(plan_queue(view, kAll).refused, ids({1}));
}

TEST(PlanQueue, NobodyJoinsAStepThatWouldThenEndTooLateForAnother) {
  const QueueOptions together{.ahead = 1h, .together = true};
  const std::vector<QueuedRequest> requests = {
      request(1, 2500ms, 1s), request(2, 3s, 1s), request(3, 4s, 1s)};
  EXPECT_EQ(plan(requests, together).dispatch, ids({1, 2})) << "a third would end after 2.5 s";
  EXPECT_EQ(plan(requests).dispatch, ids({1, 2, 3}));
  // Nor those that are late anyway; but where nobody on time is read, they join each other.
  std::vector<QueuedRequest> late = {
      request(1, 1500ms, 1s), request(2, 1s, 1s), request(3, 1s, 1s)};
  late[1].late = late[2].late = true;
  EXPECT_EQ(plan(late, together).dispatch, ids({1}));
  late[0].late = true;
  EXPECT_EQ(plan(late, together).dispatch.size(), 3U);
}

TEST(PlanQueue, DispatchesNoFurtherAheadThanAsked) {
  const QueuePlan p =
      plan({request(1, 9s, 1s), request(2, 9s, 1s), request(3, 9s, 1s)}, {.ahead = 1500ms});
  EXPECT_EQ(p.dispatch.size(), 2U) << "the second starts before the engines run dry";
  EXPECT_EQ(p.on_time.size(), 3U);
}

TEST(PlanQueue, ShortOfPagesBlocksOnlyItsOwnModel) {
  std::vector<QueuedRequest> requests = {
      request(1, 1s, 1ms), request(4, 2s, 1ms), request(2, 3s, 1ms)};
  requests[0].kv_pages = 8;
  const QueueView view{.now = kNow, .free_pages = 5, .requests = requests};
  const QueuePlan p = plan_queue(view, kAll);
  EXPECT_EQ(p.blocked, ids({1, 4})) << "4 is of the same model as 1 and may not overtake it";
  EXPECT_EQ(p.dispatch, ids({2}));
  EXPECT_TRUE(p.refused.empty());
}

TEST(PlanQueue, WhatIsGivenUpGivesBackItsPages) {
  std::vector<QueuedRequest> requests = {request(1, 1s, 2s), request(2, 3s, 1s)};
  requests[0].kv_pages = 5;
  requests[1].kv_pages = 5;
  const QueueView view{.now = kNow, .free_pages = 5, .requests = requests};
  const QueuePlan p = plan_queue(view, {.ahead = 1s});
  EXPECT_EQ(p.dispatch, ids({2}));
  EXPECT_EQ(p.late, ids({1}));
}

TEST(PlanQueue, LateOnesStayLateAndGoShortestFirstUntilAgeTells) {
  std::vector<QueuedRequest> requests = {
      request(1, 10s, 3s), request(2, 10s, 1s), request(3, -20s, 3s)};
  for (QueuedRequest& r : requests) {
    r.late = true;  // In time by the numbers, but given up before.
  }
  const QueuePlan p = plan(requests, {.ahead = 1ns});
  EXPECT_TRUE(p.on_time.empty());
  EXPECT_EQ(p.dispatch, ids({3})) << "30 s older outweigh 2 s longer at 8 to 1";
  EXPECT_EQ(p.late, ids({2, 1}));
}

TEST(PlanQueue, AbortsWhatIsHopelesslyLate) {
  std::vector<QueuedRequest> requests = {request(1, -5s, 1s), request(2, -4s, 1s)};
  requests[0].late = requests[1].late = true;
  const QueuePlan p = plan(requests, {.ahead = 1h, .abort_after = 5s});
  EXPECT_EQ(p.aborted, ids({1})) << "started now it would be 6 s late, the other 5 s";
  EXPECT_EQ(p.dispatch, ids({2}));
}

TEST(PlanQueue, ALateHeadThatEarnedItKeepsThePages) {
  std::vector<QueuedRequest> requests = {request(1, -5s, 1s), request(2, 4s, 1s)};
  requests[0].late = true;
  requests[0].kv_pages = 7;
  const QueueView poor{.now = kNow, .free_pages = 5, .requests = requests};
  EXPECT_EQ(plan_queue(poor, kAll).dispatch, ids({2}));
  QueueView earned = poor;
  earned.late_credit = 1s;
  EXPECT_EQ(plan_queue(earned, kAll).blocked, ids({2}));
  earned.free_pages = 8;
  const QueuePlan p = plan_queue(earned, kAll);
  EXPECT_EQ(p.dispatch, ids({1, 2}));
  EXPECT_EQ(p.on_time.front().finish, kNow + 2s);
  EXPECT_EQ(p.late_credit, 0s);
}

TEST(PlanQueue, ByArrivalNobodyIsGivenUp) {
  std::vector<QueuedRequest> requests = {request(1, 1s, 5s), request(2, 1s, 1s)};
  requests[0].arrived = kNow - 1s;
  const QueuePlan p = plan(requests, {.rule = QueueRule::kArrival, .ahead = 1h});
  EXPECT_EQ(p.dispatch, ids({1, 2}));
  EXPECT_TRUE(p.refused.empty());
}

// The claim of Algorithm 2, by trying all subsets: nobody serves more requests in time.
TEST(PlanQueue, IsOptimalOnRandomInstances) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const std::vector<QueuedRequest> requests = overload(rng);
    const QueuePlan p = plan(requests);
    ASSERT_EQ(static_cast<int>(p.on_time.size()), most_on_time(requests));
    ASSERT_EQ(p.on_time.size() + p.refused.size(), requests.size());
    for (const PlannedRequest& planned : p.on_time) {
      ASSERT_LE(planned.finish, requests[planned.id.value()].deadline);
    }
    std::vector<QueuedRequest> reversed(requests.rbegin(), requests.rend());
    ASSERT_EQ(plan(reversed), p);
  }
}

// On-time shares of 4000 such instances drawn by an independent implementation, whose seeds differ
// by up to 0.004 (its published 400 gave 0.808, 0.399, 0.254, 0.429 and 0.686).
TEST(PlanQueue, BeatsTheOtherOrdersAsTheReferenceDoes) {
  std::map<std::string, double> shares;
  constexpr int kRounds = 1000;
  Rng rng(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<QueuedRequest> jobs = overload(rng);
    shares["moore-hodgson"] += static_cast<double>(plan(jobs).on_time.size());
    const auto by = [&](const std::string& name, const auto& key) {
      std::sort(
          jobs.begin(), jobs.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
      shares[name] += on_time(jobs);
    };
    by("deadline", [](const auto& r) { return r.deadline; });
    by("slack", [](const auto& r) { return r.deadline - r.prefill; });
    by("arrival", [](const auto& r) { return r.arrived; });
    by("shortest", [](const auto& r) { return r.prefill; });
  }
  const std::map<std::string, double> expected = {{"moore-hodgson", 0.801},
                                                  {"deadline", 0.368},
                                                  {"slack", 0.229},
                                                  {"arrival", 0.419},
                                                  {"shortest", 0.676}};
  for (const auto& [name, share] : expected) {
    EXPECT_NEAR(shares[name] / (10.0 * kRounds), share, 0.02) << name;
  }
}

// A device under 130 % load, one request at a time: everything refused is served nevertheless,
// and the share of those in time is hardly lower than without the late list's part.
TEST(PlanQueue, WhatIsRefusedDoesNotStarve) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<QueuedRequest> waiting;
    Duration credit{};
    Instant now = kNow;
    Duration longest_wait{};
    std::uint64_t next = 0;
    Instant next_arrival = kNow;
    while (next < 3000 || !waiting.empty()) {
      while (next < 3000 && next_arrival <= now) {
        waiting.push_back(request(next++, 0s, 10ms + 1ms * rng.below(100)));
        waiting.back().arrived = next_arrival;
        waiting.back().deadline = next_arrival + 500ms;
        // Bursts of 1000 at 130 % of what the device does, then a pause to catch up in.
        next_arrival += next % 1000 == 0 ? 40s : 1ms * rng.below(92);
      }
      const QueuePlan p =
          plan_queue({.now = now, .free_pages = 9, .late_credit = credit, .requests = waiting},
                     {.ahead = 1ns});
      credit = p.late_credit;
      for (QueuedRequest& r : waiting) {
        r.late = r.late || std::binary_search(p.refused.begin(), p.refused.end(), r.id);
      }
      if (p.dispatch.empty()) {
        ASSERT_TRUE(waiting.empty()) << "idle with work at hand";
        now = std::max(now, next_arrival);
        continue;
      }
      const auto at = std::find_if(waiting.begin(), waiting.end(), [&](const auto& r) {
        return r.id == p.dispatch.front();
      });
      now += at->prefill;
      longest_wait = std::max(longest_wait, now - at->arrived);
      waiting.erase(at);
    }
    EXPECT_LT(longest_wait, 60s);
  }
}

// Under endless overload too: without its part the late list would never be served.
TEST(PlanQueue, TheLateListHasItsPartUnderEndlessOverload) {
  std::vector<QueuedRequest> waiting = {request(0, -1s, 1s)};
  waiting[0].late = true;
  Duration credit{};
  Instant now = kNow;
  std::uint64_t next = 1;
  for (int step = 0; step < 100; ++step) {
    for (int i = 0; i < 2; ++i) {
      waiting.push_back(request(next++, now - kNow + 300ms, 100ms));
    }
    const QueuePlan p = plan_queue(
        {.now = now, .free_pages = 9, .late_credit = credit, .requests = waiting}, {.ahead = 1ns});
    credit = p.late_credit;
    ASSERT_EQ(p.dispatch.size(), 1U);
    if (p.dispatch.front() == RequestId(0)) {
      EXPECT_EQ(step, 80) << "100 ms each earn an eighth: 80 of them earn the second it takes";
      return;
    }
    const auto at = std::find_if(
        waiting.begin(), waiting.end(), [&](const auto& r) { return r.id == p.dispatch.front(); });
    now += at->prefill;
    waiting.erase(at);
    std::erase_if(waiting, [&](const auto& r) {
      return std::binary_search(p.refused.begin(), p.refused.end(), r.id);
    });
  }
  FAIL() << "the late request was never served";
}

}  // namespace
}  // namespace heddle::policy
