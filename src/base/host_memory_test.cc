#include "base/host_memory.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include <unistd.h>

namespace heddle {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

/// A host of 16 GiB, of which 12 are available, as its kernel tells it.
class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("heddle-host-memory-" + std::to_string(::getpid()) +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    write(
        "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  [[nodiscard]] HostMemory read() const { return host_memory(root_.string()); }
  [[nodiscard]] std::string path(const std::string& name) const { return (root_ / name).string(); }

 private:
  std::filesystem::path root_;
};

TEST_F(HostMemoryTest, IsTheKernelsWhereNothingLimitsIt) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cgroup.procs", "1\n");
  EXPECT_EQ(read().total, 16 * kGiB);
  EXPECT_EQ(read().available, 12 * kGiB);
  EXPECT_EQ(read().group, "");
}

TEST_F(HostMemoryTest, IsThatOfTheTightestGroupAbove) {
  write("proc/self/cgroup", "0::/machine/heddle.service\n");
  write("sys/fs/cgroup/machine/memory.max", std::to_string(4 * kGiB));
  write("sys/fs/cgroup/machine/memory.current", std::to_string(3 * kGiB));
  write("sys/fs/cgroup/machine/memory.stat",
        "anon 5\ninactive_file " + std::to_string(kGiB) + "\nactive_file 7\n");
  write("sys/fs/cgroup/machine/heddle.service/memory.max", "max\n");
  EXPECT_EQ(read().total, 4 * kGiB);
  EXPECT_EQ(read().available, 2 * kGiB) << "what is idle in caches can be taken back";
  EXPECT_EQ(read().group, path("sys/fs/cgroup/machine"));
}

TEST_F(HostMemoryTest, AContainerSeesItsOwnGroupAsTheMountOrThePathOfTheHost) {
  write("sys/fs/cgroup/memory.max", std::to_string(2 * kGiB));
  write("sys/fs/cgroup/memory.current", std::to_string(kGiB / 2));
  for (const char* line : {"0::/\n", "0::/docker/0123456789ab\n", "0::/../../here\n"}) {
    write("proc/self/cgroup", line);
    EXPECT_EQ(read().total, 2 * kGiB) << line;
    EXPECT_EQ(read().available, kGiB + kGiB / 2) << line;
  }
}

TEST_F(HostMemoryTest, KnowsVersionOne) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a\n1:name=systemd:/b\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(kGiB));
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(2 * kGiB));
  EXPECT_EQ(read().total, kGiB);
  EXPECT_EQ(read().available, 0U) << "more is used than may be, as happens when a limit is lowered";
}

TEST_F(HostMemoryTest, AGroupThatIsWiderThanTheHostDoesNotLimit) {
  write("proc/self/cgroup", "0::/\nnonsense\n3:\n");
  write("sys/fs/cgroup/memory.max", std::to_string(64 * kGiB));
  EXPECT_EQ(read().total, 16 * kGiB);
  EXPECT_EQ(read().available, 12 * kGiB);
  EXPECT_EQ(read().group, "");
}

TEST(HostMemory, OfThisHostIsThere) {
  const HostMemory here = host_memory();
  EXPECT_GT(here.total, 0U);
  EXPECT_LE(here.available, here.total);
}

}  // namespace
}  // namespace heddle
