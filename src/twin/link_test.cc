#include "twin/link.h"

#include <map>

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kFirst{1};
constexpr ModelId kSecond{2};

struct Rig {
  Agenda agenda{};
  Faults faults{FaultPlan{}};
  std::map<ModelId, std::pair<std::uint64_t, Instant>> copied{};  ///< How much, and since when.
  Link link{1e6, agenda, faults, [this](ModelId model, std::uint64_t bytes) {
              copied[model] = {bytes, agenda.now()};
            }};

  void run() {
    while (agenda.advance()) {
    }
  }
};

TEST(Link, CopiesOneAfterTheOther) {
  Rig rig;
  rig.link.begin(kFirst, 32'000, 32'000);
  rig.link.begin(kSecond, 64'000, 64'000);
  rig.run();
  EXPECT_EQ(rig.copied[kFirst], std::pair(std::uint64_t{32'000}, Instant(32ms)));
  EXPECT_EQ(rig.copied[kSecond], std::pair(std::uint64_t{64'000}, Instant(96ms)));
}

TEST(Link, UrgentOnesGoFirst) {
  Rig rig;
  rig.link.begin(kFirst, 32'000, 32'000);
  rig.link.begin(kSecond, 64'000, 64'000);
  rig.link.prioritise(kSecond);
  rig.run();
  EXPECT_EQ(rig.copied[kSecond].second, Instant(69ms)) << "after the piece that was on its way";
  EXPECT_EQ(rig.copied[kFirst].second, Instant(96ms));
}

TEST(Link, WaitsForWhatIsToBeCopied) {
  Rig rig;
  rig.link.begin(kFirst, 32'000, 16'000);
  rig.run();
  EXPECT_EQ(rig.copied[kFirst].first, 16'000U);
  rig.agenda.at(Instant(1s), [&] { rig.link.allow(kFirst, 32'000); });
  rig.run();
  EXPECT_EQ(rig.copied[kFirst], std::pair(std::uint64_t{32'000}, Instant(1s + 16ms)));
}

TEST(Link, WhatWasStoppedIsNotMixedUpWithWhatFollows) {
  Rig rig;
  rig.link.begin(kFirst, 32'000, 32'000);
  rig.link.stop(kFirst);
  rig.link.begin(kFirst, 64'000, 64'000);
  rig.run();
  EXPECT_EQ(rig.copied[kFirst], std::pair(std::uint64_t{64'000}, Instant(69ms)));
}

}  // namespace
}  // namespace heddle::twin
