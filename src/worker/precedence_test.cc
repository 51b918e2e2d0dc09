#include "worker/precedence.h"

#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include <sched.h>

namespace heddle::worker {
namespace {

struct Urgency {
  int policy = -1;
  int priority = -1;
  friend bool operator==(const Urgency&, const Urgency&) = default;
};

Urgency urgency() {
  sched_param set{};
  (void)::sched_getparam(0, &set);
  return {.policy = ::sched_getscheduler(0), .priority = set.sched_priority};
}

/// What a thread of that urgency has once it took precedence; nothing where this account may not
/// have such threads. The test's other threads stay as they are.
std::optional<Urgency> raised(const Urgency& from) {
  std::optional<Urgency> after;
  std::thread([&] {
    const sched_param set{.sched_priority = from.priority};
    if (::sched_setscheduler(0, from.policy, &set) == 0) {
      take_precedence();
      std::thread([&] { after = urgency(); }).join();  // Threads to come have it, too.
    }
  }).join();
  return after;
}

TEST(Precedence, IsOneStepMoreWhereThereAreSteps) {
  const auto after = raised({.policy = SCHED_RR, .priority = 3});
  if (!after) {
    GTEST_SKIP() << "this account may not run by SCHED_RR";
  }
  EXPECT_EQ(*after, (Urgency{.policy = SCHED_RR, .priority = 4}));
  const Urgency most{.policy = SCHED_RR, .priority = ::sched_get_priority_max(SCHED_RR)};
  EXPECT_EQ(raised(most), most);
}

TEST(Precedence, IsNothingElsewhere) {
  const Urgency plain{.policy = SCHED_OTHER, .priority = 0};
  EXPECT_EQ(raised(plain), plain);
}

}  // namespace
}  // namespace heddle::worker
