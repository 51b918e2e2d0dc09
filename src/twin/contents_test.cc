#include "twin/contents.h"

#include <gtest/gtest.h>

#include "twin/prefix_marks.h"

namespace heddle::twin {
namespace {

constexpr ModelId kModel{1};
constexpr std::uint64_t kBytes = 300;  ///< On three pages of 128.
constexpr Life kLife{.device = DeviceId(0), .epoch = WorkerEpoch(1)};
constexpr Life kNextLife{.device = DeviceId(0), .epoch = WorkerEpoch(2)};

const std::vector<PageId> kHost{PageId(0), PageId(1), PageId(2)};
const std::vector<PageId> kWindow{PageId(5), PageId(3), PageId(4)};

/// Pages 0 to 2 have an image.
Contents with_image() {
  Contents contents(8, 128);
  contents.read_image(kModel, kHost, 0, 128);
  contents.read_image(kModel, kHost, 128, kBytes);
  return contents;
}

TEST(Contents, AnImageIsUsedWhereItWasReadOrCopied) {
  Contents contents = with_image();
  contents.use_image(kModel, kHost, kBytes);
  contents.copy_image(kHost, kWindow, 0, 256);
  contents.use_image(kModel, kWindow, 256);
  EXPECT_DEATH(contents.use_image(kModel, kWindow, kBytes), "part") << "its end is not copied";
  contents.copy_image(kHost, kWindow, 256, kBytes);
  contents.use_image(kModel, kWindow, kBytes);
}

TEST(Contents, AnotherImageOrOrderIsNoticed) {
  Contents contents = with_image();
  EXPECT_DEATH(contents.use_image(ModelId(2), kHost, kBytes), "model");
  EXPECT_DEATH(contents.use_image(kModel, kWindow, kBytes), "model");
  const std::vector<PageId> swapped{PageId(1), PageId(0), PageId(2)};
  EXPECT_DEATH(contents.use_image(kModel, swapped, kBytes), "part");
}

TEST(Contents, APageOfKvIsOfOneLifeAndOfNoImage) {
  Contents contents = with_image();
  contents.begin_kv(kLife, {{PageId(1)}});
  EXPECT_DEATH(contents.use_image(kModel, kHost, kBytes), "kv");
  const memory::KvBlockRef block{.page = PageId(1), .slot = 1};
  contents.write_kv(kLife, block, 7);
  contents.use_kv(kLife, block, 7);
  EXPECT_DEATH(contents.use_kv(kLife, block, 8), "mark");
  EXPECT_DEATH(contents.use_kv(kNextLife, block, 7), "life");
  EXPECT_DEATH(contents.write_kv(kNextLife, block, 7), "life");
}

TEST(PrefixMarks, AreEqualWhereModelSaltAndTokensAre) {
  const PrefixMarks marks(kModel, "", std::vector<TokenId>{1, 2, 3});
  PrefixMarks grown(kModel, "", std::vector<TokenId>{1, 2});
  EXPECT_EQ(grown.at(2), marks.at(2));
  grown.append(3);
  EXPECT_EQ(grown.at(3), marks.at(3));
  EXPECT_NE(marks.at(2), marks.at(3));
  EXPECT_NE(PrefixMarks(kModel, "", std::vector<TokenId>{2, 1, 3}).at(3), marks.at(3));
  EXPECT_NE(PrefixMarks(kModel, "x", std::vector<TokenId>{1, 2, 3}).at(3), marks.at(3));
  EXPECT_NE(PrefixMarks(ModelId(2), "", std::vector<TokenId>{1, 2, 3}).at(3), marks.at(3));
  EXPECT_FALSE(marks.empty());
  EXPECT_TRUE(PrefixMarks().empty());
}

}  // namespace
}  // namespace heddle::twin
