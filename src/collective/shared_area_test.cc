#include "collective/shared_area.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::collective {
namespace {

using testing::HasSubstr;

TEST(SharedArea, IsTheSameMemoryWhereverItIsMapped) {
  const auto made = SharedArea::create(3, 128).value();
  const auto mapped = SharedArea::attach(made->fd()).value();
  EXPECT_EQ(mapped->ranks(), 3);
  EXPECT_EQ(mapped->slot(2, 1).size(), 32U);
  EXPECT_NE(mapped->slot(0, 0).data(), made->slot(0, 0).data());
  made->slot(2, 1)[31] = 7.0F;
  EXPECT_EQ(mapped->slot(2, 1)[31], 7.0F);
  made->announcement(1, 0).count = 9;
  EXPECT_EQ(mapped->announcement(1, 0).count, 9U);
  mapped->abandon();
  EXPECT_FALSE(made->barrier().arrive_and_wait(1, 0));
}

TEST(SharedArea, PartsDoNotOverlap) {
  const auto area = SharedArea::create(4, 64).value();
  float mark = 0.0F;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    for (const std::uint32_t turn : {0U, 1U}) {
      std::fill(area->slot(rank, turn).begin(), area->slot(rank, turn).end(), ++mark);
      area->announcement(rank, turn).value = static_cast<std::uint64_t>(mark);
    }
  }
  mark = 0.0F;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    for (const std::uint32_t turn : {0U, 1U}) {
      ++mark;
      EXPECT_THAT(area->slot(rank, turn), testing::Each(mark));
      EXPECT_EQ(area->announcement(rank, turn).value, static_cast<std::uint64_t>(mark));
    }
  }
  EXPECT_TRUE(area->barrier().arrive_and_wait(1, 0)) << "nor the header";
}

TEST(SharedArea, RefusesSizesThatCannotBe) {
  EXPECT_EQ(SharedArea::create(0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(SharedArea::create(65).error().code, Code::kInvalidArgument);
  EXPECT_EQ(SharedArea::create(2, 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(SharedArea::create(2, 100).error().code, Code::kInvalidArgument);
}

TEST(SharedArea, RefusesWhatIsNoArea) {
  EXPECT_THAT(SharedArea::attach(-1).error().message, HasSubstr("Bad file descriptor"));
  const Descriptor open(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 1 << 20), 0);
  EXPECT_THAT(SharedArea::attach(open.get()).error().message, HasSubstr("not a sealed"));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(SharedArea::attach(open.get()).error().message, HasSubstr("are not what it says"));
}

}  // namespace
}  // namespace heddle::collective
