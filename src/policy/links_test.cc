#include "policy/links.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

const std::vector<LinkView> kOne = {{LinkId(1), 100.0}};

Transfer transfer(std::uint64_t id, LinkClass link_class, Duration deadline = 0s) {
  return {.id = TransferId(id),
          .link_class = link_class,
          .deadline = Instant{deadline},
          .path = {LinkId(1)}};
}

std::vector<double> share(const std::vector<Transfer>& transfers,
                          LinkRule rule = LinkRule::kClasses) {
  return share_links(kOne, transfers, rule);
}

TEST(ShareLinks, ActivationsGoByDeadline) {
  EXPECT_EQ(
      share({transfer(1, LinkClass::kActivation, 9s), transfer(2, LinkClass::kActivation, 3s)}),
      (std::vector{0.0, 100.0}));
}

TEST(ShareLinks, ActivationsOfOneDeadlineGoAlike) {
  EXPECT_EQ(share({transfer(1, LinkClass::kActivation, 2s),
                   transfer(2, LinkClass::kActivation, 2s),
                   transfer(3, LinkClass::kActivation, 3s)}),
            (std::vector{50.0, 50.0, 0.0}));
}

TEST(ShareLinks, WhatIsSlowWhereItComesFromLeavesTheRest) {
  std::vector<Transfer> transfers{transfer(1, LinkClass::kActivation, 1s),
                                  transfer(2, LinkClass::kActivation, 2s),
                                  transfer(3, LinkClass::kActivation, 2s),
                                  transfer(4, LinkClass::kPrewarm)};
  transfers[0].bytes_per_second_max = 20.0;
  transfers[1].bytes_per_second_max = 10.0;
  EXPECT_EQ(share(transfers), (std::vector{20.0, 10.0, 70.0, 0.0}));
  transfers[2].bytes_per_second_max = 0.0;
  EXPECT_EQ(share(transfers), (std::vector{20.0, 10.0, 0.0, 0.0})) << "a prewarm waits as well";
}

TEST(ShareLinks, EachClassGetsWhatThoseAboveLeave) {
  const std::vector<LinkView> two = {{LinkId(1), 100.0}, {LinkId(2), 30.0}};
  // The activation comes through the narrow link; a KV move has the rest of the wide one, and the
  // consolidation nothing.
  Transfer activation = transfer(1, LinkClass::kActivation);
  activation.path = {LinkId(2), LinkId(1)};
  const std::vector<Transfer> transfers = {
      activation, transfer(2, LinkClass::kKvMove), transfer(3, LinkClass::kConsolidation)};
  EXPECT_EQ(share_links(two, transfers, LinkRule::kClasses), (std::vector{30.0, 70.0, 0.0}));
}

TEST(ShareLinks, WithinAClassSharesAreFair) {
  EXPECT_EQ(share({transfer(1, LinkClass::kPrewarm), transfer(2, LinkClass::kPrewarm)}),
            (std::vector{50.0, 50.0}));
  // Max-min: the first is held to 20 by its second link, the other takes what that leaves.
  const std::vector<LinkView> two = {{LinkId(1), 100.0}, {LinkId(2), 20.0}};
  Transfer narrow = transfer(1, LinkClass::kKvMove);
  narrow.path.push_back(LinkId(2));
  EXPECT_EQ(
      share_links(two, std::vector{narrow, transfer(2, LinkClass::kKvMove)}, LinkRule::kClasses),
      (std::vector{20.0, 80.0}));
}

TEST(ShareLinks, PrewarmsWaitForActivationsEvenWhereBandwidthIsLeft) {
  const std::vector<LinkView> two = {{LinkId(1), 100.0}, {LinkId(2), 30.0}};
  Transfer activation = transfer(1, LinkClass::kActivation);
  activation.path = {LinkId(2), LinkId(1)};
  const std::vector<Transfer> transfers = {activation, transfer(2, LinkClass::kPrewarm)};
  EXPECT_EQ(share_links(two, transfers, LinkRule::kClasses), (std::vector{30.0, 0.0}));
}

TEST(ShareLinks, StageMessagesHaveTheirPartUnderEitherRule) {
  const std::vector<Transfer> transfers = {transfer(1, LinkClass::kStageMessage),
                                           transfer(2, LinkClass::kActivation)};
  for (const LinkRule rule : {LinkRule::kClasses, LinkRule::kFairShare}) {
    EXPECT_EQ(share(transfers, rule), (std::vector{5.0, 95.0}));
  }
}

TEST(ShareLinks, FairShareKnowsNoClasses) {
  EXPECT_EQ(share({transfer(1, LinkClass::kActivation, 1s), transfer(2, LinkClass::kPrewarm)},
                  LinkRule::kFairShare),
            (std::vector{50.0, 50.0}));
}

TEST(SendsBefore, GoesByClassDeadlineId) {
  const Transfer message = transfer(9, LinkClass::kStageMessage);
  const Transfer soon = transfer(8, LinkClass::kActivation, 1s);
  const Transfer later = transfer(1, LinkClass::kActivation, 2s);
  EXPECT_TRUE(sends_before(message, soon));
  EXPECT_TRUE(sends_before(soon, later));
  EXPECT_FALSE(sends_before(later, soon));
  EXPECT_TRUE(sends_before(transfer(1, LinkClass::kPrewarm, 9s), transfer(2, LinkClass::kPrewarm)));
  EXPECT_LT(piece_limits(LinkClass::kPrewarm).bytes, piece_limits(LinkClass::kActivation).bytes);
  EXPECT_EQ(name(LinkClass::kKvMove), "kv_move");
}

// Properties: no link is overfull; what could go faster does not; the order does not matter.
TEST(ShareLinks, KeepsItsPromisesOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<LinkView> links;
    for (std::uint64_t l = 0; l < 1 + rng.below(4); ++l) {
      links.push_back({LinkId(l), 1.0 + static_cast<double>(rng.below(100))});
    }
    std::vector<Transfer> transfers;
    for (std::uint64_t t = 0; t < rng.below(10); ++t) {
      Transfer next = transfer(t, static_cast<LinkClass>(rng.below(5)), 1s * rng.below(9));
      next.path.clear();
      const std::uint64_t first = rng.below(links.size());
      next.path.push_back(LinkId(first));
      if (first + 1 < links.size() && rng.below(2) == 0) {
        next.path.push_back(LinkId(first + 1));
      }
      transfers.push_back(next);
    }
    for (const LinkRule rule : {LinkRule::kClasses, LinkRule::kFairShare}) {
      const std::vector<double> rates = share_links(links, transfers, rule);
      std::map<LinkId, double> used;
      std::map<LinkId, bool> activated;
      for (std::size_t t = 0; t < transfers.size(); ++t) {
        for (const LinkId link : transfers[t].path) {
          const bool message = transfers[t].link_class == LinkClass::kStageMessage;
          used[link] = std::max(used[link], 0.0) + (message ? 0.0 : rates[t]);
          activated[link] |= transfers[t].link_class == LinkClass::kActivation;
        }
      }
      for (std::size_t t = 0; t < transfers.size(); ++t) {
        bool full = transfers[t].link_class == LinkClass::kStageMessage;
        for (const LinkId link : transfers[t].path) {
          const double rate = links[link.value()].bytes_per_second;
          ASSERT_LE(used[link], rate * (1 + 1e-12));
          full |= used[link] >= rate * (1.0 - kMessagePart) * (1 - 1e-12);
          full |= transfers[t].link_class == LinkClass::kPrewarm && activated[link];
        }
        ASSERT_TRUE(full) << "transfer " << t << " could go faster";
      }
      std::vector<Transfer> reversed(transfers.rbegin(), transfers.rend());
      std::vector<double> backwards = share_links(links, reversed, rule);
      std::reverse(backwards.begin(), backwards.end());
      for (std::size_t t = 0; t < rates.size(); ++t) {
        ASSERT_NEAR(backwards[t], rates[t], 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::policy
