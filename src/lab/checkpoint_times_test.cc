#include "lab/checkpoint_times.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

namespace heddle::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Notes what is asked of it.
class FakeCheckpoint : public external::DeviceCheckpoint {
 public:
  bool uses_device(pid_t /*pid*/) override { return true; }
  Result<void> lock(pid_t /*pid*/, Duration /*patience*/) override { return note("lock"); }
  Result<void> save(pid_t /*pid*/) override {
    (void)note("save");
    return fails ? Result<void>(Error{Code::kUnavailable, "it cannot be saved"}) : Result<void>();
  }
  Result<void> restore(pid_t /*pid*/) override { return note("restore"); }
  Result<void> unlock(pid_t /*pid*/) override { return note("unlock"); }

  std::vector<std::string> calls{};
  bool fails = false;

 private:
  Result<void> note(const char* what) {
    calls.emplace_back(what);
    return {};
  }
};

class CheckpointTimes : public testing::Test {
 protected:
  CheckpointTimes() {
    ::setenv("HEDDLE_CUDA_DRIVER", places::kCudaEmulator, 1);
    ::setenv("HEDDLE_CUDA_EMULATOR", "memory=24MiB", 1);
  }
  ~CheckpointTimes() override {
    ::unsetenv("HEDDLE_CUDA_DRIVER");
    ::unsetenv("HEDDLE_CUDA_EMULATOR");
  }
  FakeCheckpoint checkpoint_{};
};

TEST_F(CheckpointTimes, AProcessThatHoldsTheMemoryIsSavedAndRestored) {
  CheckpointSubject subject;
  for (const std::uint64_t mib : {8U, 18U}) {  // The first is given back for the second.
    checkpoint_.calls.clear();
    const CheckpointSample sample = subject.time(checkpoint_, 0, mib << 20U);
    EXPECT_EQ(sample.skipped, "");
    EXPECT_THAT(checkpoint_.calls, ElementsAre("lock", "save", "restore", "unlock"));
    EXPECT_EQ(sample.bytes, mib << 20U);
  }
}

TEST_F(CheckpointTimes, WhyThereAreNoneIsSaid) {
  EXPECT_THAT(CheckpointSubject().time(checkpoint_, 0, 1U << 30U).skipped,
              HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(CheckpointSubject().time(checkpoint_, 5, 1).skipped, HasSubstr("there is no GPU 5"));
  EXPECT_THAT(checkpoint_.calls, ElementsAre());
  checkpoint_.fails = true;
  EXPECT_THAT(CheckpointSubject().time(checkpoint_, 0, 1).skipped, HasSubstr("it cannot be saved"));
}

TEST_F(CheckpointTimes, ATableHasTheTimesOrTheReason) {
  const auto rows = checkpoint_table({{.bytes = 4ULL << 30U, .save = 1.5, .restore = 2},
                                      {.bytes = 16ULL << 30U, .skipped = "too old"}});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[1], ElementsAre("4.00 GiB", "1.5", "2"));
  EXPECT_THAT(rows[2], ElementsAre("16.0 GiB", "-", "skipped: too old"));
}

}  // namespace
}  // namespace heddle::lab
