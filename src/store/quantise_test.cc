#include "store/quantise.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::store {
namespace {

TEST(QuantiseRow, IsWithinHalfAStepAndUsesTheWholeRange) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row(1 + rng.below(100));
    const double size = std::exp2(static_cast<double>(rng.below(120)) - 60.0);
    float largest = 0.0F;
    for (float& value : row) {
      value = static_cast<float>((static_cast<double>(rng.below(2001)) / 1000.0 - 1.0) * size);
      largest = std::max(largest, std::abs(value));
    }
    std::vector<std::int8_t> target(row.size());
    const float scale = quantise_row(row, target);
    EXPECT_FLOAT_EQ(scale, largest / 127.0F);
    int most = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_NEAR(row[i], scale * static_cast<float>(target[i]), 0.50001F * scale);
      most = std::max(most, std::abs(static_cast<int>(target[i])));
    }
    EXPECT_EQ(most, largest > 0.0F ? 127 : 0);
  }
}

TEST(QuantiseRow, RoundsToTheNearestStep) {
  const std::vector<float> row{127.0F, -127.0F, 0.4F, -0.6F, 2.5F, 3.5F, 0.0F};
  std::vector<std::int8_t> target(row.size());
  EXPECT_EQ(quantise_row(row, target), 1.0F);
  EXPECT_EQ(target, (std::vector<std::int8_t>{127, -127, 0, -1, 2, 4, 0}));
}

TEST(QuantiseRow, RowsOfNothingAndOfWhatIsNotFinite) {
  std::vector<std::int8_t> target{5, 5};
  EXPECT_EQ(quantise_row(std::vector<float>{0.0F, -0.0F}, target), 0.0F);
  EXPECT_EQ(target, (std::vector<std::int8_t>{0, 0}));
  EXPECT_EQ(quantise_row(std::vector<float>{1e-40F, -1e-31F}, target), 0.0F);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(quantise_row(std::vector<float>{1.0F, -bad}, target)));
    EXPECT_EQ(target, (std::vector<std::int8_t>{0, 0}));
  }
}

}  // namespace
}  // namespace heddle::store
