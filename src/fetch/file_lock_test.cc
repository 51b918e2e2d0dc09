#include "fetch/file_lock.h"

#include <optional>

#include <gtest/gtest.h>

#include "base/thread.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

TEST(FileLock, WaitsForWhoHasIt) {
  const store::TempDirectory directory;
  const auto path = directory.path() / "locks/m.lock";
  std::optional<FileLock> held = std::move(FileLock::now(path)).value();
  EXPECT_EQ(FileLock::now(path).error().code, Code::kUnavailable);
  // Whoever waits says so; only then does the other let go.
  const Result<FileLock> second = FileLock::wait(path, [&] { held.reset(); }, std::stop_token());
  EXPECT_TRUE(second.has_value());
}

TEST(FileLock, AStopEndsTheWait) {
  const store::TempDirectory directory;
  const auto path = directory.path() / "m.lock";
  const Result<FileLock> held = FileLock::now(path);
  std::stop_source stop;
  const auto waited = FileLock::wait(path, [&] { stop.request_stop(); }, stop.get_token());
  ASSERT_FALSE(waited.has_value());
  EXPECT_EQ(waited.error().code, Code::kCancelled);
}

TEST(FileLock, IsSharedByThoseWhoShareIt) {
  const store::TempDirectory directory;
  const auto path = directory.path() / "m.lock";
  {
    const Result<FileLock> one = FileLock::shared(path);
    EXPECT_TRUE(FileLock::shared(path).has_value());
    EXPECT_EQ(FileLock::now(path).error().code, Code::kUnavailable);
  }
  const Result<FileLock> alone = FileLock::now(path);
  EXPECT_EQ(FileLock::shared(path).error().code, Code::kUnavailable);
}

TEST(FileLock, SaysWhereItCannotBe) {
  EXPECT_EQ(FileLock::now("/proc/none/m.lock").error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace heddle::fetch
