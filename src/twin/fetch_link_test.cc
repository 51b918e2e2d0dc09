#include "twin/fetch_link.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

/// A link of 1 MB/s, on which fetches take a tenth of that at a time.
struct LinkRig {
  Agenda agenda{};
  FetchLink link{1'000'000, FetchTimes{.credit = 250ms, .ahead = 0ms}, agenda};
  std::string order{};

  void fetch(FetchLink::Member member, char name, int pieces) {
    if (pieces > 0) {
      link.take(member, 100'000, [this, member, name, pieces] {
        order += name;
        fetch(member, name, pieces - 1);
      });
    }
  }
  void run() {
    while (agenda.advance()) {
    }
  }
};

TEST(TwinFetchLink, TakesItsTimeButForWhatNobodyTook) {
  LinkRig rig;
  rig.agenda.after(10s, [&] { rig.fetch(rig.link.join({}), 'a', 10); });
  rig.run();
  EXPECT_EQ(rig.order, "aaaaaaaaaa");
  EXPECT_EQ(rig.agenda.now(), Instant(10s + 650ms))
      << "the last is paid for 100 ms after it passed";
}

TEST(TwinFetchLink, WhatIsDueFirstGoesFirstAndEqualsTakeTurns) {
  LinkRig rig;
  const FetchLink::Member late = rig.link.join({});
  const FetchLink::Member other = rig.link.join({});
  rig.fetch(late, 'l', 4);
  rig.fetch(other, 'o', 4);
  rig.fetch(rig.link.join({.due = Instant(30s)}), 'd', 3);
  rig.run();
  EXPECT_EQ(rig.order.substr(rig.order.rfind('d') + 1).find("ll"), std::string::npos);
  EXPECT_LE(rig.order.rfind('d'), 4U) << rig.order;
}

TEST(TwinFetchLink, WhatIsFetchedEarlyAsksAgainWhenNobodyWaits) {
  LinkRig rig;
  const FetchLink::Member wanted = rig.link.join({});
  const FetchLink::Member early = rig.link.join({.early = true});
  Instant asked{};
  rig.fetch(wanted, 'w', 5);
  rig.link.ask(early, [&] { asked = rig.agenda.now(); });
  EXPECT_EQ(asked, Instant{});
  rig.agenda.after(1s, [&] { rig.link.leave(wanted); });
  rig.run();
  EXPECT_GE(asked, Instant(1s));
}

}  // namespace
}  // namespace heddle::twin
