#include "base/child.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <gtest/gtest.h>

#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace heddle {
namespace {

using namespace std::chrono_literals;

/// Exits with this status; a negative one: waits for a signal.
pid_t make_child(int status) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    while (status < 0) {
      ::pause();
    }
    ::_exit(status);
  }
  return pid;
}

Child adopt(pid_t pid) {
  Result<Child> child = Child::adopt(pid);
  HEDDLE_CHECK(child.has_value());
  return std::move(*child);
}

/// Neither there nor a zombie of ours.
bool reaped(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

TEST(Child, TellsHowItEnded) {
  Child exits = adopt(make_child(7));
  EXPECT_EQ(exits.wait(), (ProcessEnd{.how = ProcessEnd::How::kExited, .number = 7}));
  EXPECT_EQ(describe(exits.wait()), "exit status 7");
  EXPECT_FALSE(exits.wait().well());
  EXPECT_FALSE(exits.running());
  EXPECT_TRUE(adopt(make_child(0)).wait().well());

  Child killed = adopt(make_child(-1));
  EXPECT_TRUE(killed.running());
  killed.signal(SIGKILL);
  EXPECT_EQ(describe(killed.wait()), "signal 9 (Killed)");
  EXPECT_FALSE(killed.wait().well()) << "asked again, it is still known";
  EXPECT_TRUE(reaped(killed.pid()));
}

TEST(Child, IsAwaitedForSoLongAtMost) {
  Child child = adopt(make_child(-1));
  const Instant begin = steady_now();
  EXPECT_FALSE(child.wait(20ms));
  EXPECT_GE(steady_now() - begin, 20ms);
  child.signal_group(SIGTERM);
  EXPECT_TRUE(child.wait(1min));
  EXPECT_EQ(child.wait(), (ProcessEnd{.how = ProcessEnd::How::kKilled, .number = SIGTERM}));
  EXPECT_TRUE(child.wait(0ms));
}

TEST(Child, ItsEndCanBePolledFor) {
  Child child = adopt(make_child(0));
  pollfd ended{.fd = child.watch(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  EXPECT_TRUE(child.running()) << "nobody has looked yet";
  EXPECT_TRUE(child.wait(0ms));
}

TEST(Child, DiesWithItsObjectAndLeavesNoZombie) {
  const pid_t pid = make_child(-1);
  {
    Child first = adopt(pid);
    const Child second = std::move(first);
    EXPECT_TRUE(second.running());
    EXPECT_EQ(second.pid(), pid);
  }
  EXPECT_TRUE(reaped(pid));
}

TEST(Child, OneThatCannotBeWatchedIsKilled) {
  const pid_t pid = make_child(-1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<Child> child = Child::adopt(pid);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().code, Code::kUnavailable);
  EXPECT_TRUE(reaped(pid));
}

TEST(Child, OneWhoseEndTheKernelDoesNotKeepHasEndedAllTheSame) {
  struct sigaction ignore{};
  struct sigaction before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGCHLD, &ignore, &before), 0);
  Child child = adopt(make_child(-1));
  child.signal(SIGKILL);
  const ProcessEnd end = child.wait();
  ASSERT_EQ(::sigaction(SIGCHLD, &before, nullptr), 0);
  EXPECT_EQ(end.how, ProcessEnd::How::kUnseen);
  EXPECT_FALSE(end.well());
  EXPECT_FALSE(child.running());
}

}  // namespace
}  // namespace heddle
