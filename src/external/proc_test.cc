#include "external/proc.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "external/process_set.h"
#include "external/test_engine.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::external {
namespace {

TEST(Proc, KnowsThisProcess) {
  const auto facts = process_facts(::getpid());
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->parent, ::getppid());
  EXPECT_GT(facts->start_time, 0U);
  const std::vector<pid_t> all = all_processes();
  EXPECT_TRUE(std::binary_search(all.begin(), all.end(), ::getpid()));
}

TEST(Proc, IsNotMisledByNames) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_NAME, ") Z 1 (");
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  EXPECT_TRUE(comes_true([&] {
    const auto facts = process_facts(pid);
    return facts && facts->state == 'T' && facts->parent == ::getpid();
  }));
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(comes_true([&] { return process_facts(pid)->state == 'Z'; }));
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(process_facts(pid).has_value());
}

TEST(Proc, FindsWholeAssignmentsInEnvironments) {
  const std::string path = "PATH=" + std::string(::getenv("PATH"));
  EXPECT_TRUE(has_in_environment(::getpid(), path));
  EXPECT_FALSE(has_in_environment(::getpid(), path.substr(1)));
  EXPECT_FALSE(has_in_environment(::getpid(), path.substr(0, path.size() - 1)));
  EXPECT_TRUE(marked_processes("nobody has this mark").empty());
}

/// A process that does nothing, with that environment. Returns as soon as it is no longer this
/// program, which nearly always is before the kernel says where its environment is.
pid_t start_sleeping(std::vector<std::string> environment) {
  std::array<std::string, 2> words = {"sleep", "1000"};
  const std::array<char*, 3> argv = {words[0].data(), words[1].data(), nullptr};
  std::vector<char*> variables;
  for (std::string& variable : environment) {
    variables.push_back(variable.data());
  }
  variables.push_back(nullptr);
  pid_t pid = 0;
  HEDDLE_CHECK(::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), variables.data()) == 0);
  const auto environment_of = [](const std::string& process) {
    return read_small_file("/proc/" + process + "/environ");
  };
  while (environment_of(std::to_string(pid)) == environment_of("self")) {
  }
  return pid;
}

TEST(Proc, FindsProcessesThatAreAboutToBecomeAProgram) {
  const std::string mark = "HEDDLE_ENGINE=heddle-proc-test-" + std::to_string(::getpid());
  constexpr int kTimes = 200;
  for (int time = 0; time < kTimes; ++time) {
    const pid_t pid = start_sleeping({mark});
    EXPECT_TRUE(has_in_environment(pid, mark));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

TEST(Proc, AnEnvironmentMayBeEmpty) {
  const pid_t pid = start_sleeping({});
  EXPECT_FALSE(has_in_environment(pid, "A=b"));
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(comes_true([&] { return process_facts(pid)->state == 'Z'; }));
  EXPECT_FALSE(has_in_environment(pid, "A=b"));
  ::waitpid(pid, nullptr, 0);
}

TEST(Proc, ReadsAndWritesSmallFiles) {
  const Scratch scratch;
  EXPECT_EQ(read_small_file(scratch / "none"), "");
  EXPECT_FALSE(write_small_file(scratch / "none", "text")) << "it makes no files";
  EXPECT_GT(read_small_file("/proc/self/maps").size(), 4096U) << "in more than one read";
}

}  // namespace
}  // namespace heddle::external
