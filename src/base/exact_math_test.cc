#include "base/exact_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::exact {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSubnormalStep = std::numeric_limits<double>::denorm_min();
constexpr double kSmallestNormal = std::numeric_limits<double>::min();

/// Distance of `value` from the true value in units of the last place of the latter, which is
/// computed in long double: 64 bits of mantissa or more.
double error_ulp(double value, long double truth) {
  int exponent = 0;
  static_cast<void>(std::frexp(truth, &exponent));
  const long double ulp = std::max<long double>(std::ldexp(1.0L, exponent - 53),
                                                static_cast<long double>(kSubnormalStep));
  return static_cast<double>(std::abs(static_cast<long double>(value) - truth) / ulp);
}

double uniform(Rng& rng, double low, double high) {
  return low + (high - low) * (static_cast<double>(rng.next() >> 11U) * 0x1p-53);
}

TEST(ExactMath, ExpIsWithinOneUlp) {
  double worst = 0;
  Rng rng(1);
  for (int i = 0; i < 400'000; ++i) {
    const double x = i % 2 == 0 ? uniform(rng, -745, 709.7) : uniform(rng, -2, 2);
    worst = std::max(worst, error_ulp(exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(ExactMath, LogIsWithinOneUlp) {
  double worst = 0;
  Rng rng(2);
  for (int i = 0; i < 400'000; ++i) {
    // Positive finite doubles of all exponents, subnormal ones too; near 1 where log is near 0.
    const double any = std::bit_cast<double>(1 + rng.below(0x7fefffffffffffffU));
    const double x = i % 2 == 0 ? any : uniform(rng, 0.5, 2);
    worst = std::max(worst, error_ulp(log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.0);
}

TEST(ExactMath, PowIsWithinOneUlp) {
  double worst = 0;
  Rng rng(3);
  for (int i = 0; i < 400'000; ++i) {
    const double x = i % 2 == 0 ? uniform(rng, 0, 4) : exp(uniform(rng, -700, 700));
    const double y = uniform(rng, -1, 1) * (i % 3 == 0 ? 300 : 3);
    const long double truth = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    if (truth < std::numeric_limits<double>::max() && truth > kSubnormalStep) {
      worst = std::max(worst, error_ulp(pow(x, y), truth));
    }
  }
  EXPECT_LT(worst, 1.0);
}

TEST(ExactMath, ExpAtItsEdges) {
  EXPECT_EQ(exp(0.0), 1);
  EXPECT_EQ(exp(-0.0), 1);
  EXPECT_EQ(exp(-kInfinity), 0);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp(kNaN)));
  EXPECT_EQ(exp(kSubnormalStep), 1);
  EXPECT_TRUE(std::isfinite(exp(709.782712893383973)));
  EXPECT_EQ(exp(709.782712893384), exp(709.782712893384));
  EXPECT_EQ(exp(709.79), kInfinity);
  EXPECT_EQ(exp(1e300), kInfinity);
  EXPECT_EQ(exp(-745.0), kSubnormalStep);
  EXPECT_EQ(exp(-745.2), 0);
  EXPECT_EQ(exp(-1e300), 0);
  EXPECT_LT(exp(-708.5), kSmallestNormal);
  EXPECT_GT(exp(-708.5), 0);
}

TEST(ExactMath, LogAtItsEdges) {
  EXPECT_EQ(log(0.0), -kInfinity);
  EXPECT_EQ(log(-0.0), -kInfinity);
  EXPECT_TRUE(std::isnan(log(-1.0)));
  EXPECT_TRUE(std::isnan(log(-kInfinity)));
  EXPECT_TRUE(std::isnan(log(kNaN)));
  EXPECT_EQ(log(kInfinity), kInfinity);
  EXPECT_EQ(log(1.0), 0);
  EXPECT_FALSE(std::signbit(log(1.0)));
  EXPECT_EQ(log(2.0), 0.6931471805599453);
  EXPECT_EQ(log(kSubnormalStep), -744.4400719213812);
}

TEST(ExactMath, PowHasTheSpecialCasesOfC) {
  const std::vector<double> values = {
      0.0,  -0.0,  1,      -1,     0.5,    -0.5,       2,         -2,
      3,    -3,    2.5,    -2.5,   1e9,    -1e9,       kInfinity, -kInfinity,
      kNaN, 1e300, -1e300, 1e-300, 0x1p53, 0x1p53 - 1, 0x1p70,    kSubnormalStep};
  for (const double x : values) {
    for (const double y : values) {
      const double expected = std::pow(x, y);
      const double actual = pow(x, y);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << x << " ^ " << y;
      } else if (std::isinf(expected) || expected == 0) {
        EXPECT_EQ(actual, expected) << x << " ^ " << y;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << x << " ^ " << y;
      } else {
        EXPECT_LE(error_ulp(actual, expected), 1) << x << " ^ " << y;
      }
    }
  }
}

TEST(ExactMath, IntegerPowersThatFitAreExact) {
  for (const double base : {2.0, 3.0, 5.0, 7.0, 10.0, 1.5, 2.5, -3.0, 0.75, 12.0}) {
    double product = 1;
    for (int n = 1; n <= 60; ++n) {
      const double next = product * base;
      // Exact as long as the division gives the operands back and the mantissa has room.
      if (std::fma(product, base, -next) != 0) {
        break;
      }
      product = next;
      EXPECT_EQ(pow(base, n), product) << base << " ^ " << n;
    }
  }
  EXPECT_EQ(pow(2, -1074), kSubnormalStep);
  EXPECT_EQ(pow(2, 1023), 0x1p1023);
  EXPECT_EQ(pow(2, 1024), kInfinity);
  EXPECT_EQ(pow(4, 0.5), 2);
}

TEST(ExactMath, IsMonotonousNearTheSeamsOfItsReduction) {
  for (int k = -20; k <= 20; ++k) {
    double x = (k + 0.5) * 0.6931471805599453;
    for (int i = 0; i < 64; ++i) {
      const double next = std::nextafter(x, kInfinity);
      EXPECT_LE(exp(x), exp(next)) << x;
      x = next;
    }
  }
}

// The same bits on every machine: the digest was computed once and must never change.
TEST(ExactMath, GivesTheSameBitsEverywhere) {
  std::uint64_t digest = 0;
  Rng rng(4);
  const auto add = [&](double value) {
    digest = (digest ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3U;
  };
  for (int i = 0; i < 100'000; ++i) {
    const double x = uniform(rng, -740, 700);
    const double y = uniform(rng, 0, 100);
    add(exp(x));
    add(log(y));
    add(pow(y, x * 0.01));
  }
  EXPECT_EQ(digest, 12425561068110769082U);
}

}  // namespace
}  // namespace heddle::exact
