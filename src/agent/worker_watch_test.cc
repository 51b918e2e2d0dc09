#include "agent/worker_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/read_watch.h"
#include "base/child.h"
#include "external/proc.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

/// A process that sleeps, which stands for a worker.
class WorkerWatchTest : public testing::Test {
 protected:
  WorkerWatchTest() {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (;;) {
        ::pause();
      }
    }
    child_.emplace(Child::adopt(pid).value());
    watch_.begin(pid, now_);
    watch_.heard_hello();
  }

  /// Waits until the kernel has it in this state.
  void await(char state) const {
    while (external::process_signs(child_->pid()).value().state != state) {
      ::usleep(1000);
    }
  }

  std::optional<WorkerWatch::Hang> pass(Duration time) {
    std::optional<WorkerWatch::Hang> hang;
    for (const Instant end = now_ + time; now_ < end && !hang;) {
      now_ += 250ms;
      hang = watch_.look(now_);
    }
    return hang;
  }

  Instant now_{100s};
  std::optional<Child> child_{};
  WorkerWatch watch_{"cpu0", now_};
};

TEST_F(WorkerWatchTest, AStoppedWorkerIsSuspectedAndThenHangs) {
  await('S');
  child_->signal(SIGSTOP);
  await('T');
  EXPECT_FALSE(pass(1s));
  EXPECT_THAT(watch_.health().trouble, HasSubstr("a signal has stopped it"));
  EXPECT_EQ(watch_.health().suspected, 1U);
  const auto hang = pass(2s);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->reason, policy::HangReason::kStopped);
  EXPECT_EQ(watch_.health().hung.at(0), 1U);
  EXPECT_FALSE(pass(10s)) << "it is said once";
  watch_.ended(now_);
  EXPECT_THAT(watch_.health().trouble, IsEmpty());
}

TEST_F(WorkerWatchTest, ASilentWorkerThatSleepsHangs) {
  const auto hang = pass(10s);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->reason, policy::HangReason::kSilent);
}

TEST_F(WorkerWatchTest, AWorkerThatStaysDownIsTrouble) {
  watch_.ended(now_);
  EXPECT_FALSE(pass(9s));
  EXPECT_THAT(watch_.health().trouble, IsEmpty()) << "it is started again";
  EXPECT_FALSE(pass(2s));
  EXPECT_THAT(watch_.health().trouble, HasSubstr("down"));
}

TEST(ReadWatch, SaysWhenWeightsDoNotCome) {
  ReadWatch reads;
  Instant now{100s};
  const auto pass = [&](Duration time) {
    for (const Instant end = now + time; now < end;) {
      now += 250ms;
      reads.look(now);
    }
    return reads.trouble();
  };
  EXPECT_THAT(pass(1min), IsEmpty()) << "nothing is read";
  reads.begin("adder", "/models/adder", now);
  EXPECT_THAT(pass(9s), IsEmpty());
  reads.got_on();
  EXPECT_THAT(pass(9s), IsEmpty());
  now += 1h;  // The server was stopped.
  EXPECT_THAT(pass(250ms), IsEmpty());
  EXPECT_THAT(pass(2s), HasSubstr("adder"));
  reads.got_on();
  EXPECT_THAT(pass(1s), IsEmpty());
  (void)pass(20s);
  EXPECT_GT(reads.end(now), 1h);
  EXPECT_THAT(reads.trouble(), IsEmpty());
}

}  // namespace
}  // namespace heddle::agent
