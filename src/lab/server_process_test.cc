#include "lab/server_process.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Servers that are shell scripts.
class ServerProcessTest : public testing::Test {
 protected:
  ServerProcessTest() { std::filesystem::create_directories(directory_); }
  ~ServerProcessTest() override { std::filesystem::remove_all(directory_); }

  Result<std::unique_ptr<ServerProcess>> start(const std::string& script, Duration patience = 20s) {
    const std::string program = directory_ + "/server";
    {
      std::ofstream file(program);
      file << "#!/bin/sh\n" << script << "\n";
    }
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return ServerProcess::start(
        {program, "serve", "--config", "some.yaml"}, directory_ + "/log", patience);
  }

  const std::string directory_ = testing::TempDir() + "heddle-lab-" + std::to_string(::getpid()) +
                                 "-" +
                                 testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ServerProcessTest, SaysWhereItListensAndEndsWhenTold) {
  auto server = start(
      "trap 'exit 0' TERM\n"
      "[ \"$1 $2 $3\" = 'serve --config some.yaml' ] || exit 3\n"
      "echo heddle serves on http://127.0.0.1:1234\n"
      "echo more\n"
      "while :; do sleep 0.01; done");
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ((*server)->url(), "http://127.0.0.1:1234");
  EXPECT_TRUE((*server)->stop(20s));
}

TEST_F(ServerProcessTest, OneThatDoesNotComeUpIsReportedWithItsLog) {
  const auto server = start("echo some trouble >&2; exit 4");
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Code::kUnavailable);
  EXPECT_THAT(server.error().message, HasSubstr("the server ended: exit status 4"));
  EXPECT_THAT(server.error().message, HasSubstr("some trouble"));
}

TEST_F(ServerProcessTest, OneThatSaysNothingIsGivenUp) {
  const auto server = start("exec sleep 600", 50ms);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("has not said where it listens"));
}

TEST_F(ServerProcessTest, IsKilledWithItsObject) {
  pid_t pid = 0;
  {
    const auto server = start("echo http://127.0.0.1:1 x; exec sleep 600");
    ASSERT_TRUE(server) << server.error().message;
    pid = (*server)->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_F(ServerProcessTest, AFailureAtTheEndIsReported) {
  const auto server =
      start("trap 'exit 9' TERM; echo http://127.0.0.1:1 x; while :; do sleep 0.01; done");
  ASSERT_TRUE(server) << server.error().message;
  const Result<void> stopped = (*server)->stop(20s);
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message, HasSubstr("the server ended: exit status 9"));
}

}  // namespace
}  // namespace heddle::lab
