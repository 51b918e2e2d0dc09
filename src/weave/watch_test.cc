#include "weave/watch.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;

TEST(Watch, LooksWhileThereIsSomethingToLookAfter) {
  std::atomic<int> looks{0};
  Watch watch(1ms, [&] { return ++looks % 3 != 0; });
  ASSERT_TRUE(watch.start());
  for (int round = 1; round <= 2; ++round) {
    watch.wake();
    while (looks < 3 * round) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(looks, 3 * round);
  }
}

TEST(Watch, AFlagIsOnlyEverRaised) {
  device::Flag flag{5};
  let_go(flag, 8);
  EXPECT_EQ(flag.load(), 9U);
  let_go(flag, 6);
  EXPECT_EQ(flag.load(), 9U);
  flag = UINT32_MAX - 1;
  let_go(flag, 4);
  EXPECT_EQ(flag.load(), 5U) << "counting round";
}

}  // namespace
}  // namespace heddle::weave
