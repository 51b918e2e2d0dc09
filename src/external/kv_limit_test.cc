#include "external/kv_limit.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::external {
namespace {

using testing::HasSubstr;

struct KvLimitTest : testing::Test {
  KvLimitTest() { std::filesystem::create_directories(directory); }
  ~KvLimitTest() override { std::filesystem::remove_all(directory); }
  KvLimitTest(const KvLimitTest&) = delete;
  KvLimitTest& operator=(const KvLimitTest&) = delete;

  void write(const std::string& name, const std::vector<std::int64_t>& values) const {
    std::ofstream file(directory + "/" + name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(std::int64_t)));
  }
  [[nodiscard]] std::array<std::int64_t, 3> values(const std::string& name) const {
    std::array<std::int64_t, 3> all{};
    std::ifstream file(directory + "/" + name, std::ios::binary);
    file.read(reinterpret_cast<char*>(all.data()), sizeof(all));
    return all;
  }

  std::string directory = testing::TempDir() + "kv_limit-" + std::to_string(::getpid());
  KvSegments segments{directory, "engine"};
};

TEST_F(KvLimitTest, ReadsWhatTheEngineSaysAndSetsTheLimitAlone) {
  write("engine", {8000, 3000, 500});
  EXPECT_EQ(segments.read().value(), (KvUse{.limit = 8000, .used = 3000, .prealloc = 500}));
  EXPECT_EQ(segments.read()->mapped(), 3500U);
  ASSERT_TRUE(segments.set_limit(4096).has_value());
  EXPECT_EQ(values("engine"), (std::array<std::int64_t, 3>{4096, 3000, 500}));
}

TEST_F(KvLimitTest, DividesTheLimitOfSeveralPoolsAsTheyWereDivided) {
  write("engine", {6000, 100, 0});
  write("engine_g1", {2000, 50, 10});
  EXPECT_EQ(segments.read().value(), (KvUse{.limit = 8000, .used = 150, .prealloc = 10}));
  ASSERT_TRUE(segments.set_limit(4000).has_value());
  EXPECT_EQ(values("engine")[0], 3000);
  EXPECT_EQ(values("engine_g1")[0], 1000);
  ASSERT_TRUE(segments.set_limit(2).has_value());  // A byte each: 0 would not be noticed.
  EXPECT_EQ(values("engine")[0], 1);
  EXPECT_EQ(values("engine_g1")[0], 1);
  EXPECT_EQ(segments.set_limit(1).error().code, Code::kInvalidArgument);
}

TEST_F(KvLimitTest, SaysWhatIsWrongWithASegment) {
  EXPECT_EQ(segments.read().error().code, Code::kNotFound);
  EXPECT_THAT(segments.set_limit(100).error().message, HasSubstr("is missing: no kvcached runs"));
  EXPECT_FALSE(std::filesystem::exists(directory + "/engine"));  // It is not made by asking.
  write("engine", {1, 2});
  EXPECT_THAT(segments.read().error().message,
              HasSubstr("has 16 bytes where kvcached 0.1 has 24: another version wrote it"));
  write("engine", {100, -5, 0});
  EXPECT_THAT(segments.read().error().message, HasSubstr("says -5 bytes"));
  EXPECT_EQ(segments.set_limit(50).error().code, Code::kCorrupt);
  EXPECT_EQ(values("engine")[0], 100);
}

TEST_F(KvLimitTest, ReportsMoreThanTheLimitAsItIsSaid) {
  write("engine", {100, 300, 20});
  EXPECT_EQ(segments.read()->mapped(), 320U);
}

TEST_F(KvLimitTest, DoesNotWaitForAnEngineThatHoldsTheLock) {
  write("engine", {100, 0, 0});
  const int other = ::open((directory + "/engine").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_SH), 0);
  EXPECT_TRUE(segments.read().has_value());
  EXPECT_EQ(segments.set_limit(50).error().code, Code::kUnavailable);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_EQ(segments.read().error().code, Code::kUnavailable);
  ::close(other);
  EXPECT_TRUE(segments.set_limit(50).has_value());
}

TEST_F(KvLimitTest, RemovesWhatIsOfNobodyAndNothingElse) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const std::string gone = segment_name(child, "a/b");
  const std::string ours = segment_name(::getpid(), "a/b");
  write(gone, {1, 0, 0});
  write(ours, {1, 0, 0});
  write("kvcached_engine_1", {1, 0, 0});
  EXPECT_EQ(remove_left_segments(directory), 1);
  EXPECT_FALSE(std::filesystem::exists(directory + "/" + gone));
  EXPECT_TRUE(std::filesystem::exists(directory + "/" + ours));
  EXPECT_TRUE(std::filesystem::exists(directory + "/kvcached_engine_1"));
  const KvSegments own(directory, ours);
  own.remove();
  EXPECT_FALSE(std::filesystem::exists(directory + "/" + ours));
}

TEST_F(KvLimitTest, NamesSegmentsAsKvcachedTakesThem) {
  const std::string name = segment_name(4194304, "meta-llama/Llama.3:70b " + std::string(80, 'x'));
  EXPECT_LE(name.size(), 64U);
  EXPECT_EQ(
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"),
      std::string::npos);
  EXPECT_NE(segment_name(7, "a/b"), segment_name(7, "a-b"));
}

}  // namespace
}  // namespace heddle::external
