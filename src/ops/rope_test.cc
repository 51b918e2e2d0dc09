#include "ops/rope.h"

#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class RopeTest : public OpTest {};

TEST_F(RopeTest, TurnsHalvesOfEachHead) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kHeads = 2;
  constexpr std::int64_t kDim = 6;
  constexpr std::int64_t kWidth = kHeads * kDim + 5;  // Heads are part of a wider row.
  const auto before = random(kTokens * kWidth);
  auto rows = before;
  std::vector<float> cos_sin;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (int part = 0; part < 2; ++part) {
      for (std::int64_t i = 0; i < kDim / 2; ++i) {
        const double angle = 0.7 * static_cast<double>(t) + 0.3 * static_cast<double>(i);
        cos_sin.push_back(static_cast<float>(part == 0 ? std::cos(angle) : std::sin(angle)));
      }
    }
  }
  rope(context_,
       {.cos_sin = matrix_of(cos_sin.data(), kTokens, kDim),
        .heads = heads_of(matrix_of(rows.data(), kTokens, kWidth), 0, kHeads, kDim)});
  synchronize();
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const float* x = before.data() + t * kWidth;
    const float* y = rows.data() + t * kWidth;
    for (std::int64_t at = 0; at < kWidth; ++at) {
      if (at >= kHeads * kDim) {
        EXPECT_EQ(y[at], x[at]) << "outside the heads";
        continue;
      }
      const std::int64_t i = at % (kDim / 2);
      const bool second = at % kDim >= kDim / 2;
      const double angle = 0.7 * static_cast<double>(t) + 0.3 * static_cast<double>(i);
      const auto own = static_cast<double>(x[at]);
      const auto other = static_cast<double>(x[second ? at - kDim / 2 : at + kDim / 2]);
      const double expected = own * std::cos(angle) + (second ? other : -other) * std::sin(angle);
      EXPECT_NEAR(static_cast<double>(y[at]), expected, 0x1p-23 * (std::abs(own) + std::abs(other)))
          << "token " << t << ", element " << at;
    }
  }
}

}  // namespace
}  // namespace heddle::ops
