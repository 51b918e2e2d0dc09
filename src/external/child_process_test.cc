#include "external/child_process.h"

#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "external/test_engine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::external {
namespace {

struct Said {
  std::string output{};
  std::string how{};
};

/// Runs it to its end.
Said run_command(const Command& command) {
  boost::asio::io_context loop(1);
  std::array<int, 2> ends{};
  HEDDLE_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  Said said;
  auto child = ChildProcess::spawn(
      loop.get_executor(), command, writing, [&](const std::string& how) { said.how = how; });
  HEDDLE_CHECK(child.has_value());
  writing = Descriptor();
  loop.run();
  std::array<char, 4096> buffer{};
  for (ssize_t got = 1; got > 0;) {
    got = ::read(reading.get(), buffer.data(), buffer.size());
    said.output.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  return said;
}

Command shell(const std::string& script) {
  return {.argv = {"sh", "-c", script}};
}

Error refusal(const Command& command) {
  boost::asio::io_context loop(1);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const auto child =
      ChildProcess::spawn(loop.get_executor(), command, nowhere, [](const std::string&) {});
  return child ? Error{Code::kCancelled, "it ran"} : child.error();
}

TEST(ChildProcess, TellsWhatItWroteAndHowItEnded) {
  const Said exits = run_command(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(exits.output, "out\nerr\n");
  EXPECT_EQ(exits.how, "exit status 7");
  EXPECT_EQ(run_command(shell("kill -9 $$")).how, "signal 9 (Killed)");
}

TEST(ChildProcess, HasASessionOfItsOwnAndNoDescriptorsOfOurs) {
  const Descriptor careless(::open("/dev/null", O_RDONLY));  // Not marked close-on-exec.
  const Said said =
      run_command(shell("cut -d' ' -f1,5,6 /proc/self/stat; ls /proc/self/fd | tr '\\n' ' '; cat"));
  const std::size_t line = said.output.find('\n');
  // The number of cut is not the session's, which is the shell's.
  const std::string ids = said.output.substr(0, line);
  const std::string group = ids.substr(ids.find(' ') + 1);
  EXPECT_EQ(group.substr(0, group.find(' ')), group.substr(group.find(' ') + 1));
  EXPECT_NE(group.substr(0, group.find(' ')), std::to_string(::getpgrp()));
  EXPECT_EQ(said.output.substr(line + 1), "0 1 2 3 ") << "3 is the directory that ls reads";
}

TEST(ChildProcess, HasOurEnvironmentAndItsOwn) {
  ::setenv("HEDDLE_TEST_KEPT", "kept", 1);
  ::setenv("HEDDLE_TEST_CHANGED", "ours", 1);
  Command command = shell("echo $HEDDLE_TEST_KEPT $HEDDLE_TEST_CHANGED $PWD");
  command.env = {{"HEDDLE_TEST_CHANGED", "its own"}};
  command.directory = "/proc";
  EXPECT_EQ(run_command(command).output, "kept its own /proc\n");
}

TEST(ChildProcess, SaysWhyItCannotBeStarted) {
  const Error program = refusal({.argv = {"/no/such/program"}});
  EXPECT_EQ(program.code, Code::kInvalidArgument);
  EXPECT_NE(program.message.find("/no/such/program"), std::string::npos) << program.message;
  Command command = shell("true");
  command.directory = "/no/such/directory";
  const Error directory = refusal(command);
  EXPECT_EQ(directory.code, Code::kInvalidArgument);
  EXPECT_NE(directory.message.find("/no/such/directory"), std::string::npos) << directory.message;
  command.directory = "";
  command.join_file = "/no/such/group/cgroup.procs";
  EXPECT_EQ(refusal(command).code, Code::kUnavailable);
}

TEST(ChildProcess, DiesWithItsObjectAndLeavesNoZombie) {
  boost::asio::io_context loop(1);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  bool told = false;
  auto child = ChildProcess::spawn(
      loop.get_executor(), {.argv = {"sleep", "1000"}}, nowhere, [&](const std::string&) {
        told = true;
      });
  ASSERT_TRUE(child.has_value());
  const pid_t pid = (*child)->pid();
  child->reset();
  EXPECT_FALSE(process_facts(pid).has_value());
  loop.run();
  EXPECT_FALSE(told);
}

TEST(ChildProcess, DiesWithTheThreadThatStartedIt) {
  boost::asio::io_context loop(1);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::unique_ptr<ChildProcess> child;
  std::thread starter([&] {
    child =
        ChildProcess::spawn(
            loop.get_executor(), {.argv = {"sleep", "1000"}}, nowhere, [](const std::string&) {})
            .value();
  });
  starter.join();
  EXPECT_TRUE(comes_true([&] { return gone(child->pid()); }));
}

}  // namespace
}  // namespace heddle::external
