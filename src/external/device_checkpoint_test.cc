#include "external/device_checkpoint.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "external/fake_checkpoint.h"

namespace heddle::external {
namespace {

using namespace std::chrono_literals;
using State = FakeCheckpoint::State;
using testing::ElementsAre;

FakeCheckpoint two_of_three() {
  FakeCheckpoint fake;
  fake.states = {{7, State::kRunning}, {9, State::kRunning}};
  return fake;
}
const std::vector<pid_t> kPids = {7, 8, 9};

std::vector<std::string> names(const std::vector<Phase>& phases) {
  std::vector<std::string> all;
  for (const Phase& phase : phases) {
    all.push_back(phase.name);
  }
  return all;
}

TEST(DeviceCheckpoint, LocksAllBeforeItSavesAny) {
  FakeCheckpoint fake = two_of_three();
  const auto saved = save_all(fake, kPids, 1s);
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  EXPECT_THAT(saved->pids, ElementsAre(7, 9)) << "8 has nothing on a device";
  EXPECT_THAT(fake.calls, ElementsAre("lock 7", "lock 9", "save 7", "save 9"));
  EXPECT_THAT(names(saved->phases), ElementsAre("lock", "save"));

  fake.calls.clear();
  const auto restored = restore_all(fake, saved->pids);
  ASSERT_TRUE(restored.has_value());
  EXPECT_THAT(fake.calls, ElementsAre("restore 7", "restore 9", "unlock 7", "unlock 9"));
  EXPECT_THAT(names(*restored), ElementsAre("restore", "unlock"));
}

TEST(DeviceCheckpoint, UndoesWhatItDidToTheOthers) {
  for (const char* failing : {"lock 9", "save 7", "save 9"}) {
    FakeCheckpoint fake = two_of_three();
    fake.fails = {failing};
    const auto saved = save_all(fake, kPids, 1s);
    ASSERT_FALSE(saved.has_value()) << failing;
    EXPECT_NE(saved.error().message.find("told to fail"), std::string::npos);
    for (const auto& [pid, state] : fake.states) {
      EXPECT_EQ(state, State::kRunning) << pid << " after " << failing;
    }
  }
}

TEST(DeviceCheckpoint, SaysWhatCouldNotBeUndone) {
  FakeCheckpoint fake = two_of_three();
  fake.fails = {"save 9", "unlock 7"};
  const auto saved = save_all(fake, kPids, 1s);
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().message,
            "process 9: save was told to fail; unlocking process 7 then failed too: unlock was "
            "told to fail");
}

TEST(DeviceCheckpoint, OfProcessesWithoutDevicesIsRefused) {
  FakeCheckpoint fake;
  const auto saved = save_all(fake, kPids, 1s);
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(fake.calls.empty());
}

TEST(DeviceCheckpoint, FailsWhereOneCannotBeRestored) {
  FakeCheckpoint fake = two_of_three();
  const auto saved = save_all(fake, kPids, 1s);
  ASSERT_TRUE(saved.has_value());
  fake.fails = {"restore 9"};
  const auto restored = restore_all(fake, saved->pids);
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error().message, "process 9: restore was told to fail");
}

TEST(CudaCheckpoint, IsThereOrSaysWhyNot) {
  const auto opened = open_cuda_checkpoint();
  if (!opened) {
    EXPECT_EQ(opened.error().code, Code::kUnavailable);
    EXPECT_FALSE(opened.error().message.empty());
    GTEST_SKIP() << opened.error().message;
  }
  EXPECT_FALSE((*opened)->uses_device(1));
}

}  // namespace
}  // namespace heddle::external
