#include "base/descriptor_limit.h"

#include <gtest/gtest.h>

#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>

namespace heddle {
namespace {

TEST(DescriptorLimit, TheSoftOneIsRaisedToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit lower{.rlim_cur = before.rlim_max / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(descriptor_limit(), before.rlim_max / 2);
  EXPECT_EQ(raise_descriptor_limit(), before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(DescriptorLimit, OpenOnesAreCounted) {
  const std::size_t before = open_descriptors();
  const Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(open_descriptors(), before + 1);
}

}  // namespace
}  // namespace heddle
