#include "memory/cached_image.h"

#include <vector>

#include <gtest/gtest.h>

#include "device/fake/fake_device.h"

namespace heddle::memory {
namespace {

constexpr std::size_t kImagePage = std::size_t{64} << 10U;
constexpr OwnerId kImageOwner{5};

class CachedImageTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<CachedImage> image(std::int64_t pages) {
    return CachedImage::create(
               pool_, kImageOwner, cached_, static_cast<std::size_t>(pages) * kImagePage)
        .value();
  }

  device::FakeDevice device_{kImagePage, 4};
  PagePool pool_{device_, std::vector<PageId>{PageId(0), PageId(1), PageId(2), PageId(3)}};
  CachedPages cached_{};
};

TEST_F(CachedImageTest, PagesAreItsUsersThenCachedAndGoTogether) {
  const auto one = image(2);
  EXPECT_EQ(pool_.owned_count(kImageOwner), 2);
  EXPECT_EQ(cached_.count(), 0);
  one->leave();
  EXPECT_EQ(cached_.count(), 2);
  EXPECT_TRUE(one->there());
  one->use();
  EXPECT_EQ(cached_.count(), 0);
  EXPECT_FALSE(cached_.drop_oldest(ledger::DropReason::kKv));
  one->leave();
  EXPECT_TRUE(cached_.drop_oldest(ledger::DropReason::kLoad));
  EXPECT_FALSE(one->there());
  EXPECT_EQ(cached_.count(), 0);
  EXPECT_EQ(pool_.free_count(), 4);
  EXPECT_EQ(cached_.dropped(), (ledger::DropCounts{0, 2, 0, 0}));
  pool_.check_invariants();
}

TEST_F(CachedImageTest, TheOneUsedLongestAgoMakesRoom) {
  const auto one = image(2);
  const auto two = image(2);
  one->leave();
  two->leave();
  one->use();
  one->leave();
  const auto three = image(1);
  EXPECT_TRUE(one->there());
  EXPECT_FALSE(two->there());
  EXPECT_EQ(pool_.free_count(), 1);
}

TEST_F(CachedImageTest, WhatIsEnqueuedIsOverBeforeItGoes) {
  int settled = 0;
  const auto one = CachedImage::create(pool_, kImageOwner, cached_, kImagePage, [&] {
                     EXPECT_EQ(pool_.owned_count(kImageOwner), 1);
                     ++settled;
                   }).value();
  one->leave();
  one->use();
  one->leave();
  EXPECT_EQ(settled, 0);
  EXPECT_TRUE(cached_.drop_oldest(ledger::DropReason::kKv));
  EXPECT_EQ(settled, 1);
  EXPECT_EQ(pool_.owned_count(kImageOwner), 0);
}

TEST_F(CachedImageTest, WithoutRoomNothingIsTaken) {
  const auto one = image(3);
  const auto more = CachedImage::create(pool_, kImageOwner, cached_, 2 * kImagePage);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  EXPECT_EQ(pool_.free_count(), 1);
}

TEST_F(CachedImageTest, ItsEndIsCountedAsItsModels) {
  {
    const auto one = image(1);
    one->leave();
  }
  EXPECT_EQ(pool_.free_count(), 4);
  EXPECT_EQ(cached_.dropped(), (ledger::DropCounts{0, 0, 0, 1}));
}

}  // namespace
}  // namespace heddle::memory
