#include "external/proc.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "external/process_set.h"
#include "external/test_engine.h"

#include <signal.h>
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

TEST(Proc, FindsProcessesThatAreAboutToBecomeAProgram) {
  const std::string mark = "HEDDLE_ENGINE=heddle-proc-test-" + std::to_string(::getpid());
  const std::array<const char*, 3> words = {"sleep", "1000", nullptr};
  const std::array<const char*, 2> environment = {mark.c_str(), nullptr};
  constexpr int kTimes = 200;  // The parent nearly always goes on first.
  for (int time = 0; time < kTimes; ++time) {
    const pid_t pid = ::vfork();
    if (pid == 0) {
      ::execvpe(words[0],
                const_cast<char* const*>(words.data()),
                const_cast<char* const*>(environment.data()));
      ::_exit(1);
    }
    EXPECT_TRUE(has_in_environment(pid, mark));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

TEST(Proc, DoesNotWaitForAnEnvironmentThatIsEmpty) {
  const std::array<const char*, 3> words = {"sleep", "1000", nullptr};
  const std::array<const char*, 1> environment = {nullptr};
  const pid_t pid = ::vfork();
  if (pid == 0) {
    ::execvpe(words[0],
              const_cast<char* const*>(words.data()),
              const_cast<char* const*>(environment.data()));
    ::_exit(1);
  }
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
