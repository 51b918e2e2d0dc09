#include "external/memory_meter.h"

#include <gtest/gtest.h>

#include "external/test_engine.h"

#include <sys/mman.h>
#include <unistd.h>

namespace heddle::external {
namespace {

constexpr std::size_t kBlock = 32U << 20U;

TEST(HostBytes, GrowWithMemoryThatIsTouched) {
  const std::vector<pid_t> self = {::getpid()};
  const HostBytes before = host_bytes(self);
  EXPECT_GT(before.total, before.file);
  EXPECT_GT(before.file, 0U) << "the program itself";
  void* block = ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  EXPECT_LT(host_bytes(self).total, before.total + kBlock / 2) << "it was not touched";
  for (std::size_t at = 0; at < kBlock; at += 4096) {
    static_cast<volatile char*>(block)[at] = 1;
  }
  const HostBytes after = host_bytes(self);
  EXPECT_GE(after.total, before.total + kBlock - (1U << 20U));
  EXPECT_LE(after.file, before.file + (4U << 20U));
  ::munmap(block, kBlock);
}

TEST(HostBytes, OfNobodyAreNone) {
  EXPECT_EQ(host_bytes({}).total, 0U);
  EXPECT_EQ(host_bytes({-5}).total, 0U);
}

TEST(Nvml, MeasuresOrSaysWhyNot) {
  const auto meter = open_nvml();
  if (!meter) {
    EXPECT_EQ(meter.error().code, Code::kUnavailable);
    EXPECT_NE(meter.error().message.find("nvidia-ml"), std::string::npos) << meter.error().message;
    GTEST_SKIP() << meter.error().message;
  }
  const auto held = (*meter)->device_bytes({::getpid()});
  ASSERT_TRUE(held.has_value()) << held.error().message;
  EXPECT_EQ(*held, 0U) << "this process has no context on any device";
}

}  // namespace
}  // namespace heddle::external
