#include "base/core_wait.h"

#include <atomic>
#include <cstdint>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/clock.h"

#include <sched.h>

namespace heddle {
namespace {

using namespace std::chrono_literals;

void work_until(const std::atomic<bool>& end) {
  while (!end) {
  }
}

TEST(CoreWait, CountsWhatAThreadWaitsWhileAnotherHasItsCore) {
  std::thread([] {}).join();  // A thread's time is counted when it leaves its core at the latest.
  std::int64_t ran = 0;
  if (!(std::ifstream("/proc/thread-self/schedstat") >> ran) || ran == 0) {
    GTEST_SKIP() << "this kernel does not count it";
  }
  std::atomic<bool> end = false;
  Duration waited{};
  // Both on the core where this one is now.
  std::thread pinned([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    std::thread other([&end] { work_until(end); });
    const Duration before = waited_for_core();
    const Instant patience = steady_now() + 20s;
    while (waited < 10ms && steady_now() < patience) {
      waited = waited_for_core() - before;
    }
    end = true;
    other.join();
  });
  pinned.join();
  EXPECT_GE(waited, 10ms);
}

}  // namespace
}  // namespace heddle
