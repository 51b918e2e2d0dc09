#include "sim/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr TransferId kOne{1};
constexpr TransferId kTwo{2};

Instant at(Duration time) {
  return Instant(time);
}

/// A server with a NIC of 1 GB/s and PCIe of 4 GB/s.
class HostLinksTest : public testing::Test {
 protected:
  HostLinks make(LinkRule rule) {
    HostLinks links(rule);
    nic_ = links.add_link(1e9);
    pcie_ = links.add_link(4e9);
    return links;
  }
  policy::Transfer through_nic(TransferId id, LinkClass link_class = LinkClass::kActivation) {
    return {.id = id, .link_class = link_class, .path = {nic_}};
  }
  LinkId nic_{};
  LinkId pcie_{};
};

TEST_F(HostLinksTest, OneTransferHasTheNarrowestLinkOfItsPath) {
  HostLinks links = make(LinkRule::kFairShare);
  links.start(
      at(1s), 5e9, {.id = kOne, .link_class = LinkClass::kActivation, .path = {nic_, pcie_}});
  EXPECT_EQ(links.next_done(), at(6s));
  EXPECT_EQ(links.users(pcie_), 1U);
  EXPECT_THAT(links.take_done(at(6s)), ElementsAre(kOne));
  EXPECT_EQ(links.next_done(), std::nullopt);
}

// 4 GB from 0 s and 1 GB from 1 s at 1 GB/s: alone till 1 s, then halves; the short one ends at 3
// s, the long one has 3 - 1 = 2 GB left and ends at 5 s.
TEST_F(HostLinksTest, FairSharesAreEqual) {
  HostLinks links = make(LinkRule::kFairShare);
  links.start(at(0s), 4e9, through_nic(kOne));
  links.start(at(1s), 1e9, through_nic(kTwo, LinkClass::kPrewarm));
  EXPECT_EQ(links.next_done(), at(3s));
  EXPECT_THAT(links.take_done(at(3s)), ElementsAre(kTwo));
  EXPECT_EQ(links.next_done(), at(5s));
}

TEST_F(HostLinksTest, ByClassesTheEarliestDeadlineGoesFirst) {
  HostLinks links = make(LinkRule::kClasses);
  policy::Transfer late = through_nic(kOne);
  late.deadline = at(100s);
  policy::Transfer soon = through_nic(kTwo);
  soon.deadline = at(50s);
  links.start(at(0s), 4e9, late);
  links.start(at(1s), 1e9, soon);
  EXPECT_EQ(links.next_done(), at(2s));
  EXPECT_THAT(links.take_done(at(2s)), ElementsAre(kTwo));
  EXPECT_EQ(links.next_done(), at(5s));
}

TEST_F(HostLinksTest, APrewarmWaitsAndCanBecomeUrgent) {
  HostLinks links = make(LinkRule::kClasses);
  links.start(at(0s), 2e9, through_nic(kOne, LinkClass::kPrewarm));
  links.start(at(1s), 3e9, through_nic(kTwo, LinkClass::kKvMove));
  EXPECT_EQ(links.next_done(), at(4s));
  links.reclassify(at(2s), kOne, LinkClass::kActivation);
  EXPECT_EQ(links.next_done(), at(3s));
  EXPECT_THAT(links.take_done(at(3s)), ElementsAre(kOne));
  EXPECT_EQ(links.next_done(), at(5s));
}

TEST_F(HostLinksTest, SpeedMayChangeAndStop) {
  HostLinks links = make(LinkRule::kFairShare);
  links.start(at(0s), 4e9, through_nic(kOne));
  links.set_rate(at(1s), nic_, 0);
  EXPECT_EQ(links.next_done(), std::nullopt);
  links.set_rate(at(10s), nic_, 3e9);
  EXPECT_EQ(links.next_done(), at(11s));
}

TEST_F(HostLinksTest, ACancelledTransferLeavesItsShare) {
  HostLinks links = make(LinkRule::kFairShare);
  links.start(at(0s), 4e9, through_nic(kOne));
  links.start(at(0s), 4e9, through_nic(kTwo));
  EXPECT_DOUBLE_EQ(links.cancel(at(2s), kOne), 3e9);
  EXPECT_EQ(links.cancel(at(2s), kOne), 0);
  EXPECT_EQ(links.next_done(), at(5s));
}

// Whatever comes and goes, a link that always has work moves its rate times the time.
TEST_F(HostLinksTest, NothingIsLostOrWonUnderAnyOrder) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    HostLinks links = make(seed % 2 == 0 ? LinkRule::kFairShare : LinkRule::kClasses);
    double bytes = 0;
    const std::uint64_t count = 2 + rng.below(20);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double size = 1e6 * static_cast<double>(1 + rng.below(1'000'000));
      policy::Transfer transfer =
          through_nic(TransferId(i), i == 0 ? LinkClass::kActivation : LinkClass(1 + rng.below(3)));
      transfer.deadline = at(Duration(1 + static_cast<std::int64_t>(rng.below(1'000'000))));
      links.start(at(0s), size, transfer);
      bytes += size;
    }
    Instant last{};
    while (const std::optional<Instant> next = links.next_done()) {
      links.take_done(*next);
      last = *next;
    }
    EXPECT_EQ(links.transfers(), 0U) << "seed " << seed;
    EXPECT_NEAR(static_cast<double>(last.time_since_epoch().count()), bytes, 100)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::sim
