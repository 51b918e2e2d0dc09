#include "base/event_log.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include <unistd.h>

namespace heddle {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string scratch(const std::string& name) {
  return testing::TempDir() + name + "-" + std::to_string(::getpid());
}

TEST(EventLog, HasEveryLineInOrder) {
  const std::string path = scratch("events");
  std::string expected;
  {
    auto log = EventLog::create({.path = path});
    ASSERT_TRUE(log);
    for (int i = 0; i < 1000; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      (*log)->write(line);
      expected += line;
    }
  }
  EXPECT_EQ(contents(path), expected);
}

TEST(EventLog, TurnsOverWhenItIsFull) {
  const std::string path = scratch("turning");
  for (int round = 0; round < 3; ++round) {
    auto log = EventLog::create({.path = path, .bytes_max = 10});
    ASSERT_TRUE(log);
    (*log)->write("1234567\n");
    while (contents(path) != "1234567\n") {
      std::this_thread::yield();
    }
    (*log)->write("abc\n");
    log->reset();
    EXPECT_EQ(contents(path), "abc\n");
    EXPECT_EQ(contents(path + ".1"), "1234567\n");
  }
}

TEST(EventLog, NamesTheFileThatCannotBeWritten) {
  const auto log = EventLog::create({.path = "/no/such/folder/events"});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().message,
            "write the event log /no/such/folder/events: No such file or directory");
}

TEST(EventLog, EndsRatherThanHaveAHole) {
  const std::string path = scratch("slow");
  auto log = EventLog::create({.path = path, .waiting_bytes_max = 4});
  ASSERT_TRUE(log);
  (*log)->write("too long\n");
  (*log)->write("x\n");
  log->reset();
  EXPECT_EQ(contents(path), "");
}

}  // namespace
}  // namespace heddle
