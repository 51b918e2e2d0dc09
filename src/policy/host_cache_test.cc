#include "policy/host_cache.h"

#include <gtest/gtest.h>

#include "policy/backoff.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

const CachedImage kImages[] = {{.model = ModelId(1), .pages = 10, .last_used = Instant{3s}},
                               {.model = ModelId(2), .pages = 10, .last_used = Instant{1s}},
                               {.model = ModelId(3), .pages = 40, .last_used = Instant{2s}}};

TEST(ChooseImagesToDrop, TakesTheLeastRecentlyUsed) {
  EXPECT_EQ(choose_images_to_drop(kImages, 5, Instant::max()), std::vector{ModelId(2)});
  EXPECT_EQ(choose_images_to_drop(kImages, 0, Instant::max()), std::vector<ModelId>{});
}

TEST(ChooseImagesToDrop, SparesWhatALargerOneMadeUnnecessary) {
  EXPECT_EQ(choose_images_to_drop(kImages, 40, Instant::max()), std::vector{ModelId(3)});
}

TEST(ChooseImagesToDrop, KeepsWhatIsWorthMoreThanTheNewcomer) {
  EXPECT_EQ(choose_images_to_drop(kImages, 20, Instant{2s}), std::nullopt);
  EXPECT_EQ(choose_images_to_drop(kImages, 10, Instant{2s}), std::vector{ModelId(2)});
}

TEST(ChooseImagesToDrop, DropsNothingInVain) {
  EXPECT_EQ(choose_images_to_drop(kImages, 61, Instant::max()), std::nullopt);
}

TEST(Backoff, DoublesUpToItsBound) {
  EXPECT_EQ(backoff(1, 100ms, 1s), 100ms);
  EXPECT_EQ(backoff(4, 100ms, 1s), 800ms);
  EXPECT_EQ(backoff(5, 100ms, 1s), 1s);
  EXPECT_EQ(backoff(1'000'000, 100ms, 1s), 1s);
}

}  // namespace
}  // namespace heddle::policy
