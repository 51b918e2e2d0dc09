#include "worker/precedence.h"

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

bool become(const Urgency& wanted) {
  const sched_param set{.sched_priority = wanted.priority};
  return ::sched_setscheduler(0, wanted.policy, &set) == 0;
}

TEST(Precedence, IsOneStepMoreWhereThereAreSteps) {
  bool allowed = false;
  Urgency raised;
  Urgency inherited;
  std::thread([&] {  // A thread's own: the others of this test stay as they are.
    allowed = become({.policy = SCHED_RR, .priority = 3});
    take_precedence();
    raised = urgency();
    std::thread([&] { inherited = urgency(); }).join();
  })
      .join();
  if (!allowed) {
    GTEST_SKIP() << "this account may not run by SCHED_RR";
  }
  EXPECT_EQ(raised, (Urgency{.policy = SCHED_RR, .priority = 4}));
  EXPECT_EQ(inherited, raised);
}

TEST(Precedence, IsNothingElsewhere) {
  Urgency before;
  Urgency after;
  std::thread([&] {
    (void)become({.policy = SCHED_OTHER, .priority = 0});
    before = urgency();
    take_precedence();
    after = urgency();
  }).join();
  EXPECT_EQ(after, before);
}

TEST(Precedence, HasAnEnd) {
  Urgency after;
  bool allowed = false;
  const Urgency most{.policy = SCHED_RR, .priority = ::sched_get_priority_max(SCHED_RR)};
  std::thread([&] {
    allowed = become(most);
    take_precedence();
    after = urgency();
  }).join();
  if (!allowed) {
    GTEST_SKIP() << "this account may not run by SCHED_RR";
  }
  EXPECT_EQ(after, most);
}

}  // namespace
}  // namespace heddle::worker
