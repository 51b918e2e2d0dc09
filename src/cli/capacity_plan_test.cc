#include "cli/capacity_plan.h"

#include <functional>

#include <gtest/gtest.h>

namespace heddle::cli {
namespace {

using Sizes = std::vector<std::int64_t>;

/// The sizes that are looked at, `ahead` doublings at once, where `part` of them is in time.
Sizes scan(std::int64_t most, std::size_t ahead, const std::function<double(std::int64_t)>& part) {
  return scan_sizes(most, 0.99, ahead, [&](const Sizes& sizes, bool until_enough) {
    std::vector<double> parts;
    for (const std::int64_t size : sizes) {
      parts.push_back(part(size));
      if (until_enough && parts.back() >= 0.99) {
        break;
      }
    }
    return parts;
  });
}

/// Where those from `enough` on are.
Sizes scanned(std::int64_t most, std::int64_t enough, std::size_t ahead = 1) {
  return scan(most, ahead, [&](std::int64_t size) {
    return size >= enough ? 1 : 0.9 * static_cast<double>(size) / static_cast<double>(enough);
  });
}

TEST(ScanSizes, DoublesAndThenLeavesNothingOut) {
  EXPECT_EQ(scanned(64, 1), (Sizes{1}));
  EXPECT_EQ(scanned(64, 2), (Sizes{1, 2}));
  EXPECT_EQ(scanned(64, 3), (Sizes{1, 2, 4, 3}));
  EXPECT_EQ(scanned(64, 6), (Sizes{1, 2, 4, 8, 5, 6, 7}));
}

TEST(ScanSizes, EndsAtTheMost) {
  EXPECT_EQ(scanned(6, 6), (Sizes{1, 2, 4, 6, 5}));
  EXPECT_EQ(scanned(6, 9), (Sizes{1, 2, 4, 6}));
  EXPECT_EQ(scanned(1, 9), (Sizes{1}));
}

TEST(ScanSizes, MoreThatIsWorseIsSeen) {
  Sizes asked;
  const Sizes sizes = scan(64, 1, [&](std::int64_t size) {
    asked.push_back(size);
    return size == 5 || size == 8 ? 1 : 0.1 * static_cast<double>(size);
  });
  EXPECT_EQ(sizes, asked);
  EXPECT_EQ(sizes, (Sizes{1, 2, 4, 8, 5, 6, 7}));
}

TEST(ScanSizes, EndsWhereMoreDoesNotHelp) {
  EXPECT_EQ(scan(64, 1, [](std::int64_t) { return 0.4; }), (Sizes{1, 2, 4}));
  EXPECT_EQ(scan(64, 1, [](std::int64_t size) { return size < 4 ? 0.4 : 0.5; }),
            (Sizes{1, 2, 4, 8, 16}));
}

TEST(ScanSizes, AskingAheadChangesNothing) {
  for (std::int64_t enough = 1; enough < 40; ++enough) {
    for (const std::size_t ahead : {2U, 3U, 8U}) {
      EXPECT_EQ(scanned(24, enough, ahead), scanned(24, enough)) << enough << " " << ahead;
    }
  }
  EXPECT_EQ(scan(64, 4, [](std::int64_t) { return 0.4; }), (Sizes{1, 2, 4}));
}

}  // namespace
}  // namespace heddle::cli
