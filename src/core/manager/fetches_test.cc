#include "core/manager/fetches.h"

#include <gtest/gtest.h>

#include "core/manager/images.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kB;
using test::TestState;
using namespace std::chrono_literals;

constexpr HostId kHost{0};
constexpr std::uint64_t kFetchedBytes = test::kImagePages * test::kPageBytes;  // 80 MB.

struct Rig : TestState {
  Rig() {
    for (ManagerModel& model : configuration.models) {
      model.fetched = {{kHost, kFetchedBytes}};
    }
    configuration.networks = {{kHost, 10'000'000}};
    configure();
    fetches.configure(configuration);
  }
  void pass(Duration time) {
    state.now += time;
    fetches.advance();
  }
  [[nodiscard]] const std::vector<policy::Fetch>& under_way() const {
    return state.networks.at(kHost).fetches();
  }
};

TEST(Fetches, GoFromTheLoadUntilTheFilesAreThere) {
  Rig rig;
  rig.fetches.begin(kHost, kA);
  rig.fetches.begin(kHost, kA);
  ASSERT_EQ(rig.under_way().size(), 1U) << "two devices load it, and it is fetched once";
  rig.pass(2s);
  EXPECT_EQ(rig.under_way()[0].bytes, 60'000'000);
  EXPECT_EQ(fetch_time(rig.state, kB, kHost), 14s) << "behind the other";
  rig.fetches.heard({.model = kA, .bytes = 70'000'000, .host = kHost});
  EXPECT_EQ(rig.under_way()[0].bytes, 10'000'000) << "it went faster than was thought";
  rig.fetches.heard({.model = kA, .bytes = kFetchedBytes, .host_cached = true, .host = kHost});
  EXPECT_TRUE(rig.under_way().empty());
}

TEST(Fetches, EndWithTheirHostAndWithWhatFailed) {
  Rig rig;
  rig.fetches.begin(kHost, kA);
  rig.fetches.begin(kHost, kB);
  rig.fetches.end(kHost, kB);
  ASSERT_EQ(rig.under_way().size(), 1U);
  rig.fetches.lose(HostId(4));
  EXPECT_EQ(rig.under_way().size(), 1U);
  rig.fetches.lose(kHost);
  EXPECT_TRUE(rig.under_way().empty());
}

TEST(Fetches, AnotherRateHoldsForWhatIsUnderWay) {
  Rig rig;
  rig.fetches.begin(kHost, kA);
  rig.pass(2s);
  rig.configuration.networks[kHost] = 20'000'000;
  rig.fetches.configure(rig.configuration);
  rig.pass(1s);
  ASSERT_EQ(rig.under_way().size(), 1U);
  EXPECT_EQ(rig.under_way()[0].bytes, 40'000'000);
}

TEST(Fetches, WhereTheNetworkIsNotKnownNothingIsPromised) {
  Rig rig;
  rig.state.networks.clear();
  rig.fetches.begin(kHost, kA);
  rig.fetches.heard({.model = kA, .bytes = 5, .host = kHost});
  rig.fetches.lose(kHost);
  EXPECT_TRUE(admits_fetch(rig.state, kA, kHost));
  EXPECT_EQ(fetch_time(rig.state, kA, kHost), 640ms) << "1 Gbit/s";
}

}  // namespace
}  // namespace heddle::core::manager
