#include "device/cuda/nvml.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::device {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kFirst = "GPU-e0000000-0000-0000-0000-000000000000";
constexpr const char* kSecond = "GPU-e0000000-0000-0000-0000-000000000001";

/// The emulated library, with what a test writes of GPUs.
class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    ::setenv("HEDDLE_NVML", places::kNvmlEmulator, 1);
    ::setenv("HEDDLE_NVML_EMULATOR", file_.c_str(), 1);
  }
  ~NvmlTest() override {
    ::unsetenv("HEDDLE_NVML");
    ::unsetenv("HEDDLE_NVML_EMULATOR");
    ::unlink(file_.c_str());
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }

  std::string file_ = testing::TempDir() + "nvml." + std::to_string(::getpid());
};

TEST_F(NvmlTest, TellsWhoHoldsWhat) {
  write(std::string(kFirst) + " 1000 700 11:400 12:200\n" + kSecond + " 2000 0\n");
  const auto gpus = Nvml::open().value()->read().value();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].uuid, kFirst);
  EXPECT_EQ(gpus[0].total, 1000U);
  EXPECT_EQ(gpus[0].used, 700U);
  ASSERT_EQ(gpus[0].processes.size(), 2U);
  EXPECT_EQ(gpus[0].processes[1].pid, 12);
  EXPECT_EQ(gpus[0].processes[1].bytes, 200U);
  EXPECT_TRUE(gpus[1].processes.empty());
}

TEST_F(NvmlTest, MoreProcessesThanExpectedAreAllTold) {
  std::string text = std::string(kFirst) + " 1000 1000";
  for (int pid = 1; pid <= 300; ++pid) {
    text += " " + std::to_string(100000000 + pid) + ":1";
  }
  write(text + "\n");
  const auto gpus = Nvml::open().value()->read().value();
  EXPECT_EQ(gpus[0].processes.size(), 300U);
  EXPECT_EQ(held_by_others(gpus[0]), 300U);
}

TEST_F(NvmlTest, WhatTheDriverDoesNotKnowCountsNothing) {
  write(std::string(kFirst) + " 1000 700 11:18446744073709551615\n");
  EXPECT_EQ(Nvml::open().value()->read().value()[0].processes[0].bytes, 0U);
}

TEST_F(NvmlTest, OurOwnAreThisProcessItsChildrenAndThisProgram) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
  }
  EXPECT_TRUE(is_ours(::getpid()));
  EXPECT_TRUE(is_ours(child));
  EXPECT_FALSE(is_ours(::getppid())) << "who runs this test";
  EXPECT_FALSE(is_ours(1));
  EXPECT_FALSE(is_ours(999999999)) << "nobody";
  write(std::string(kFirst) + " 1000 700 " + std::to_string(child) +
        ":400 999999999:200 999999998:50\n");
  const auto gpus = Nvml::open().value()->read().value();
  EXPECT_EQ(held_by_others(gpus[0]), 250U);
  EXPECT_THAT(name_others(gpus[0]), StartsWith("process (999999999) 200"));
  EXPECT_THAT(name_others(std::string(kFirst)), HasSubstr("(999999998)"));
  EXPECT_EQ(name_others(std::string("GPU-of-no-machine")), "");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(NvmlTest, WhereThereIsNoneItSaysSo) {
  ::setenv("HEDDLE_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  EXPECT_THAT(Nvml::open().error().message, HasSubstr("/nonexistent/libnvidia-ml.so.1"));
  EXPECT_EQ(name_others(std::string(kFirst)), "");
  ::setenv("HEDDLE_NVML", places::kNvmlEmulator, 1);
  ::unsetenv("HEDDLE_NVML_EMULATOR");
  EXPECT_EQ(Nvml::open().error().message, "NVML: start: Driver Not Loaded");
}

}  // namespace
}  // namespace heddle::device
