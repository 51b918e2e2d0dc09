#include "worker/image_parts.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::worker {
namespace {

TEST(ImagePartsTest, AreTakenInOrderAndInPlaceFromTheFrontOn) {
  ImageParts parts(100);
  const auto first = parts.take(40, 100);
  const auto second = parts.take(40, 100);
  ASSERT_EQ(first, (ImagePart{0, 40}));
  ASSERT_EQ(second, (ImagePart{40, 80}));
  parts.put_in_place(*second);
  EXPECT_EQ(parts.in_place(), 0U) << "the front is still under way";
  parts.put_in_place(*first);
  EXPECT_EQ(parts.in_place(), 80U);
  EXPECT_EQ(parts.take(40, 100), (ImagePart{80, 100}));
  EXPECT_EQ(parts.take(40, 100), std::nullopt);
  parts.put_in_place({80, 100});
  EXPECT_TRUE(parts.complete());
}

TEST(ImagePartsTest, EndWhereTheSourceDoes) {
  ImageParts parts(100);
  EXPECT_EQ(parts.take(40, 0), std::nullopt);
  EXPECT_EQ(parts.take(40, 30), (ImagePart{0, 30}));
  EXPECT_FALSE(parts.has(30));
  EXPECT_TRUE(parts.has(31));
}

TEST(ImagePartsTest, WhoAsksForAWholePartGetsNoLess) {
  ImageParts parts(100);
  EXPECT_EQ(parts.take(40, 30, 40), std::nullopt);
  EXPECT_FALSE(parts.has(30, 40));
  EXPECT_EQ(parts.take(40, 100, 40), (ImagePart{0, 40}));
  EXPECT_EQ(parts.take(40, 100, 40), (ImagePart{40, 80}));
  EXPECT_EQ(parts.take(40, 100, 40), std::nullopt) << "the rest is smaller";
}

TEST(ImagePartsTest, WhatIsGivenBackGoesFirst) {
  ImageParts parts(100);
  const auto first = parts.take(10, 100);
  (void)parts.take(10, 100);
  parts.give_back(*first);
  EXPECT_TRUE(parts.has(0)) << "its source was there when it was taken";
  EXPECT_EQ(parts.take(6, 100), (ImagePart{0, 6}));
  EXPECT_EQ(parts.take(10, 100), (ImagePart{6, 10}));
  EXPECT_EQ(parts.take(10, 100), (ImagePart{20, 30}));
}

TEST(ImagePartsTest, EveryByteIsCopiedOnceHoweverPathsFail) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  for (int run = 0; run < 200; ++run) {
    const std::uint64_t bytes = 1 + rng.below(5000);
    ImageParts parts(bytes);
    std::vector<ImagePart> taken;
    std::vector<int> copied(bytes);
    std::uint64_t limit = 0;
    std::uint64_t before = 0;
    while (!parts.complete()) {
      limit = std::min(bytes, limit + rng.below(200));
      if (const auto part = parts.take(1 + rng.below(200), limit)) {
        taken.push_back(*part);
      }
      if (!taken.empty() && rng.below(2) == 0) {
        const auto which = taken.begin() + static_cast<std::ptrdiff_t>(rng.below(taken.size()));
        if (rng.below(4) == 0) {
          parts.give_back(*which);
        } else {
          for (std::uint64_t at = which->begin; at < which->end; ++at) {
            ++copied[at];
          }
          parts.put_in_place(*which);
        }
        taken.erase(which);
      }
      ASSERT_GE(parts.in_place(), before);
      before = parts.in_place();
      ASSERT_TRUE(std::all_of(copied.begin(),
                              copied.begin() + static_cast<std::ptrdiff_t>(before),
                              [](int times) { return times == 1; }));
    }
    ASSERT_TRUE(std::ranges::all_of(copied, [](int times) { return times == 1; }));
  }
}

}  // namespace
}  // namespace heddle::worker
