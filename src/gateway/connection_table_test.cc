#include "gateway/connection_table.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::gateway {
namespace {

using State = ConnectionTable::State;
using testing::ElementsAre;

struct Fake final : ConnectionTable::Entry {
  Fake(std::string text, std::vector<std::string>& who) : name(std::move(text)), closed(who) {}
  void close() override { closed.push_back(name); }
  void wind_down() override {}
  std::string name;
  std::vector<std::string>& closed;
};

class ConnectionTableTest : public testing::Test {
 protected:
  Fake& enter(const std::string& name, const std::string& address = "a") {
    Fake& fake = *fakes.emplace_back(std::make_unique<Fake>(name, closed));
    table.enter(fake, address);
    return fake;
  }

  std::vector<std::string> closed{};
  std::vector<std::unique_ptr<Fake>> fakes{};
  ConnectionTable table{};
};

TEST_F(ConnectionTableTest, WhoNeverSpokeGoesFirstThenBegunHeadsThenWhoWasSilentLongest) {
  Fake& one = enter("one");
  Fake& two = enter("two");
  Fake& three = enter("three");
  enter("four");
  enter("five");
  table.move(one, State::kBusy);
  table.move(two, State::kBusy);
  table.move(three, State::kHead);
  table.move(two, State::kBetween);
  table.move(one, State::kBetween);
  while (table.push_out()) {
  }
  EXPECT_THAT(closed, ElementsAre("four", "five", "three", "two", "one"));
  EXPECT_EQ(table.size(), 0U);
}

TEST_F(ConnectionTableTest, TheAddressWithTheMostSilentOnesGivesFirst) {
  enter("a1", "a");
  for (int i = 0; i < 3; ++i) {
    table.move(enter("b" + std::to_string(i), "b"), State::kBetween);
  }
  for (int i = 0; i < 5; ++i) {
    table.move(enter("c" + std::to_string(i), "c"), State::kBusy);
  }
  EXPECT_TRUE(table.push_out());
  EXPECT_TRUE(table.push_out());
  EXPECT_THAT(closed, ElementsAre("b0", "b1"));
  EXPECT_EQ(table.busy(), 5U);
}

TEST_F(ConnectionTableTest, WhatIsBusyStays) {
  table.move(enter("a"), State::kBusy);
  EXPECT_FALSE(table.push_out());
  EXPECT_FALSE(table.has_silent());
  EXPECT_EQ(table.busy(), 1U);
}

TEST_F(ConnectionTableTest, AClientHasSoManyRequestsAtMost) {
  Fake& one = enter("one");
  Fake& two = enter("two");
  Fake& three = enter("three");
  EXPECT_TRUE(table.begin(one, "key", 2));
  EXPECT_TRUE(table.begin(two, "key", 2));
  EXPECT_FALSE(table.begin(three, "key", 2));
  EXPECT_TRUE(table.begin(three, "other", 2));
  table.move(one, State::kBetween);
  table.leave(two);
  table.move(three, State::kBetween);
  EXPECT_TRUE(table.begin(three, "key", 2));
  EXPECT_TRUE(table.begin(one, "key", 2));
}

TEST_F(ConnectionTableTest, WhoWasPushedOutIsNotCountedAgain) {
  Fake& one = enter("one");
  EXPECT_TRUE(table.push_out());
  table.move(one, State::kBusy);
  table.leave(one);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.busy(), 0U);
}

/// Against a list that is searched.
TEST_F(ConnectionTableTest, IsRightAfterAnyMoves) {
  struct Known {
    Fake* fake;
    std::string address;
    State state;
    std::uint64_t since;
  };
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    ConnectionTable tried;
    std::vector<std::unique_ptr<Fake>> all;
    std::vector<Known> known;
    for (std::uint64_t now = 0; now < 400; ++now) {
      const std::uint64_t act = rng.below(10);
      if (known.empty() || act < 4) {
        const std::string address(1, static_cast<char>('a' + rng.below(4)));
        Fake& fake = *all.emplace_back(std::make_unique<Fake>(std::to_string(now), closed));
        tried.enter(fake, address);
        known.push_back({&fake, address, State::kFresh, now});
      } else if (act < 8) {
        Known& moved = known[rng.below(known.size())];
        const auto state = static_cast<State>(rng.below(4));
        tried.move(*moved.fake, state);
        moved.since = moved.state == state ? moved.since : now;
        moved.state = state;
      } else if (act < 9) {
        const std::size_t at = rng.below(known.size());
        tried.leave(*known[at].fake);
        known.erase(known.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        std::map<std::string, int> silent;
        for (const Known& one : known) {
          silent[one.address] += one.state != State::kBusy ? 1 : 0;
        }
        const std::size_t before = closed.size();
        const bool pushed = tried.push_out();
        const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) {
          return pushed && one.fake->name == closed.back();
        });
        ASSERT_EQ(pushed, closed.size() > before);
        for (const Known& one : known) {
          if (one.state == State::kBusy) {
            continue;
          }
          ASSERT_TRUE(pushed) << "seed " << seed;
          ASSERT_LE(silent[one.address], silent[found->address]) << "seed " << seed;
          if (one.address == found->address) {
            ASSERT_LE(std::tuple(found->state, found->since), std::tuple(one.state, one.since));
          }
        }
        if (pushed) {
          known.erase(found);
        }
      }
      ASSERT_EQ(tried.size(), known.size());
    }
    for (const Known& one : known) {
      tried.leave(*one.fake);
    }
  }
}

TEST(PeerGroup, IsAnAddressOrTheFirstHalfOfOneOfIpv6) {
  EXPECT_EQ(peer_group("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(peer_group("2001:db8::1"), peer_group("2001:db8:0:0:ffff::2"));
  EXPECT_NE(peer_group("2001:db8::1"), peer_group("2001:db8:0:1::1"));
  EXPECT_EQ(peer_group("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(peer_group(""), "");
}

}  // namespace
}  // namespace heddle::gateway
