#include "cli/last_resort.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using namespace std::chrono_literals;

TEST(LastResortDeathTest, EndsAProcessThatDoesNotEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LastResort last;
        last.arm(1ms);
        for (;;) {
          std::this_thread::sleep_for(1h);
        }
      },
      testing::ExitedWithCode(EXIT_FAILURE),
      "did not end within 1.00 ms");
}

TEST(LastResortDeathTest, LeavesAloneOneThatDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        {
          LastResort last;
          last.arm(1h);
        }
        std::exit(7);
      },
      testing::ExitedWithCode(7),
      "");
}

}  // namespace
}  // namespace heddle::cli
