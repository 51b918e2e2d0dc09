#include "core/manager/guest_loans.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kOther;
using test::kUnknown;
using test::TestState;

/// The second device lends `pages` to a model on the first.
struct Lent : TestState {
  explicit Lent(std::int64_t pages) : TestState(2) {
    serve(kA);
    serve(kB, kOther);
    guests.lend(kOther, kDevice, kA, pages, "why");
    guests.heard({.device = kOther, .model = kA, .pages = pages});
    commands.clear();
  }
};

TEST(GuestLoans, ADeviceWhoseLoansAreOfNoUseIsAskedLessAndLess) {
  TestState core(2);
  core.serve(kA);
  const auto refused_for = [&] {
    core.guests.lend(kOther, kDevice, kA, 4, "why");
    core.guests.heard({.device = kOther, .model = kA, .pages = 4});  // And then it fails.
    core.guests.heard({.device = kOther, .model = kA, .pages = 0, .refused = true});
    return core.device(kOther).lends_at - core.state.now;
  };
  EXPECT_EQ(refused_for(), std::chrono::seconds(1));
  EXPECT_EQ(refused_for(), std::chrono::seconds(2));
  EXPECT_EQ(refused_for(), std::chrono::seconds(4));
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(refused_for(), std::chrono::minutes(5));
  }
  core.guests.lend(kOther, kDevice, kA, 4, "why");
  core.guests.used(kOther, kA);
  EXPECT_EQ(refused_for(), std::chrono::seconds(1)) << "it was of use since";
}

TEST(GuestLoans, ALoadHasWhatItLacksComeBackFirst) {
  Lent core(8);
  // Of 20 pages b has 9, and c needs as many.
  core.load(kC, kOther);
  const std::vector<Unweave> orders = core.all<Unweave>();
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].host, kOther);
  EXPECT_EQ(orders[0].pages, 6);
  const auto is_load = [](const ManagerCommand& c) { return std::holds_alternative<LoadOn>(c); };
  const auto is_recall = [](const auto& c) { return std::holds_alternative<Unweave>(c); };
  EXPECT_LT(std::ranges::find_if(core.commands, is_recall),
            std::ranges::find_if(core.commands, is_load));
  EXPECT_EQ(core.decisions(DecisionKind::kRecall)[0].for_model, kC);
}

TEST(GuestLoans, WhatWasTakenBackIsNotLentAgainAtOnce) {
  Lent core(8);
  core.guests.recall_any(kOther, 8, "why");
  core.guests.heard({.device = kOther, .model = kA, .pages = 0});
  EXPECT_TRUE(core.device(kOther).guests.empty());
  EXPECT_GT(core.device(kOther).lends_at, core.state.now);
}

TEST(GuestLoans, WhatIsOnItsWayBackIsNotRecalledAgain) {
  Lent core(8);
  core.guests.recall(kOther, kA, 5, "why");
  core.guests.recall(kOther, kA, 5, "why");
  core.guests.recall_any(kOther, 5, "why");
  std::int64_t recalled = 0;
  for (const Unweave& order : core.all<Unweave>()) {
    recalled += order.pages;
  }
  EXPECT_EQ(recalled, 8);
  EXPECT_EQ(lent_pages(core.device(kOther)), 0);
}

TEST(GuestLoans, ALoadWithRoomBesideTheGuestsRecallsNothing) {
  Lent core(2);
  core.load(kC, kOther);
  EXPECT_TRUE(core.all<Unweave>().empty());
}

TEST(GuestLoans, TheAgentsWordCounts) {
  Lent core(8);
  EXPECT_TRUE(has_guests_elsewhere(core.state, kDevice));
  EXPECT_FALSE(has_guests_elsewhere(core.state, kOther));
  core.guests.heard({.device = kOther, .model = kUnknown, .pages = 3});
  EXPECT_EQ(core.device(kOther).guests.size(), 1U) << "of nobody's loan it says nothing";
  core.guests.heard({.device = kOther, .model = kA, .pages = 0});
  EXPECT_TRUE(core.device(kOther).guests.empty()) << "as when the hot worker died";
}

}  // namespace
}  // namespace heddle::core::manager
