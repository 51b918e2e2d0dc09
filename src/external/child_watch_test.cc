#include "external/child_watch.h"

#include <optional>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "external/proc.h"

#include <signal.h>
#include <unistd.h>

namespace heddle::external {
namespace {

/// Exits with this status; a negative one: waits for a signal.
Child make_child(int status) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    while (status < 0) {
      ::pause();
    }
    ::_exit(status);
  }
  return std::move(Child::adopt(pid).value());
}

TEST(ChildWatch, TellsOnTheLoopHowItEnded) {
  boost::asio::io_context loop(1);
  std::optional<std::string> exited;
  std::optional<std::string> killed;
  const ChildWatch first(
      loop.get_executor(), make_child(3), [&](const std::string& how) { exited = how; });
  const ChildWatch second(
      loop.get_executor(), make_child(-1), [&](const std::string& how) { killed = how; });
  EXPECT_TRUE(second.child().running());
  second.child().signal(SIGKILL);
  EXPECT_FALSE(exited.has_value());
  loop.run();
  EXPECT_EQ(exited, "exit status 3");
  EXPECT_EQ(killed, "signal 9 (Killed)");
  EXPECT_FALSE(second.child().running());
}

TEST(ChildWatch, TakesItsChildWithItAndTellsNobody) {
  boost::asio::io_context loop(1);
  bool told = false;
  std::optional<ChildWatch> watch;
  watch.emplace(loop.get_executor(), make_child(-1), [&](const std::string&) { told = true; });
  const pid_t pid = watch->child().pid();
  watch.reset();
  EXPECT_FALSE(process_facts(pid).has_value());
  loop.run();
  EXPECT_FALSE(told);
}

TEST(ChildWatch, MayBeDestroyedByWhoeverIsTold) {
  boost::asio::io_context loop(1);
  std::optional<ChildWatch> watch;
  watch.emplace(loop.get_executor(), make_child(0), [&](const std::string&) { watch.reset(); });
  loop.run();
  EXPECT_FALSE(watch.has_value());
}

}  // namespace
}  // namespace heddle::external
