#include "external/reclaim.h"

#include <gtest/gtest.h>

#include "external/memory_meter.h"
#include "external/test_engine.h"

#include <linux/magic.h>
#include <sys/vfs.h>

namespace heddle::external {
namespace {

constexpr std::uint64_t kMib = 1U << 20U;

TEST(Reclaim, TakesPagesOfFilesAndLeavesTheRest) {
  RunningEngine engine({"--anonymous-mib", "48", "--file-mib", "64"});
  struct statfs where{};
  ASSERT_EQ(::statfs(engine.scratch.path().c_str(), &where), 0);
  if (where.f_type == TMPFS_MAGIC) {
    GTEST_SKIP() << engine.scratch.path() << " is in memory, and files there have nowhere to go";
  }
  ASSERT_TRUE(
      comes_true([&] { return host_bytes(engine.body->processes()->members()).file > 64 * kMib; }));
  const std::vector<pid_t> pids = engine.body->processes()->members();
  const HostBytes before = host_bytes(pids);
  const auto given = give_back_file_pages(pids);
  if (!given && given.error().message.find("CAP_SYS_NICE") != std::string::npos) {
    GTEST_SKIP() << given.error().message;
  }
  ASSERT_TRUE(given.has_value()) << given.error().message;
  const HostBytes after = host_bytes(pids);
  EXPECT_GE(*given, 60 * kMib);
  EXPECT_LE(after.file, before.file - 60 * kMib);
  EXPECT_GE(after.total - after.file, 48 * kMib) << "anonymous memory stays";
}

TEST(Reclaim, OfNobodyIsNothing) {
  const auto given = give_back_file_pages({});
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(*given, 0U);
}

}  // namespace
}  // namespace heddle::external
