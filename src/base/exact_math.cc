#include "base/exact_math.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace heddle::exact {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kSignBit = 0x8000000000000000U;
constexpr std::uint64_t kFractionMask = 0x000fffffffffffffU;
constexpr int kExponentBias = 1023;

// ln 2 = kLn2High + kLn2Low to 2^-102; the high part has 32 bits, so that k * kLn2High is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLn2LowRest = 0x1.cc01f97b57a08p-87;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;

/// An unevaluated sum of two doubles, |low| <= ulp(high) / 2: about 106 bits.
struct Double2 {
  double high = 0;
  double low = 0;
};

/// a + b exactly, for |a| >= |b|.
Double2 fast_sum(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}

/// a + b exactly (D. Knuth).
Double2 sum(double a, double b) {
  const double high = a + b;
  const double b_part = high - a;
  return {high, (a - (high - b_part)) + (b - b_part)};
}

/// a * b exactly, without fused operations (T. Dekker); |a|, |b| < 2^990.
Double2 product(double a, double b) {
  constexpr double kSplit = 134217729.0;  // 2^27 + 1 cuts 53 bits into 26 and 27.
  const double a_wide = a * kSplit;
  const double a_high = a_wide - (a_wide - a);
  const double a_low = a - a_high;
  const double b_wide = b * kSplit;
  const double b_high = b_wide - (b_wide - b);
  const double b_low = b - b_high;
  const double high = a * b;
  return {high, a_low * b_low - (((high - a_high * b_high) - a_low * b_high) - a_high * b_low)};
}

Double2 product(Double2 a, Double2 b) {
  const Double2 p = product(a.high, b.high);
  return fast_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

double power_of_two(int exponent) {  // -1022 <= exponent <= 1023
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kExponentBias) << 52U);
}

/// value * 2^exponent for value in [1/2, 2), rounded only where the result is subnormal.
double scale(double value, int exponent) {
  if (exponent > kExponentBias - 1) {
    return value * power_of_two(kExponentBias - 1) * power_of_two(exponent - (kExponentBias - 1));
  }
  if (exponent < -1000) {
    return value * power_of_two(-1000) * power_of_two(exponent + 1000);
  }
  return value * power_of_two(exponent);
}

/// e^(x.high + x.low). e^x = 2^k e^r with |r| <= ln 2 / 2, and a Taylor series for e^r whose rest
/// is below 2^-57.
double exp_of(Double2 x) {
  if (x.high > 709.8) {
    return kInfinity;
  }
  if (x.high < -745.2) {
    return 0;
  }
  const int k = static_cast<int>(x.high * kLog2E + (x.high < 0 ? -0.5 : 0.5));
  const double reduced = x.high - k * kLn2High;
  const Double2 shifted = sum(reduced, -(k * kLn2Low));
  const Double2 r = sum(shifted.high, shifted.low + x.low);
  constexpr std::array kInverseFactorials = {1.0 / 2,
                                             1.0 / 6,
                                             1.0 / 24,
                                             1.0 / 120,
                                             1.0 / 720,
                                             1.0 / 5040,
                                             1.0 / 40320.0,
                                             1.0 / 362880.0,
                                             1.0 / 3628800.0,
                                             1.0 / 39916800.0,
                                             1.0 / 479001600.0,
                                             1.0 / 6227020800.0};
  double series = 0;
  for (std::size_t i = kInverseFactorials.size(); i-- > 0;) {
    series = series * r.high + kInverseFactorials[i];
  }
  const double tail = r.low + r.low * r.high + r.high * r.high * series;
  const Double2 lead = fast_sum(1.0, r.high);
  return scale(lead.high + (lead.low + tail), k);
}

/// ln x for finite x > 0, to about 2^-65 of itself. x = 2^k m with m in [sqrt(1/2), sqrt(2));
/// ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), |s| <= 0.1716. The
/// first two terms are summed in double-double, the others are below 2^-12 of the first.
Double2 log_of(double x) {
  int k = 0;
  if (x < power_of_two(-1022)) {
    x *= power_of_two(54);
    k = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  k += static_cast<int>(bits >> 52U) - kExponentBias;
  double m = std::bit_cast<double>((bits & kFractionMask) | std::bit_cast<std::uint64_t>(1.0));
  if (m > kSqrt2) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1;  // Exact.
  const Double2 divisor = sum(m, 1);
  const double s_high = f / divisor.high;
  const Double2 back = product(s_high, divisor.high);
  const double s_low = ((f - back.high) - back.low - s_high * divisor.low) / divisor.high;
  const Double2 s = fast_sum(s_high, s_low);

  const Double2 square = product(s, s);
  const double z = square.high;
  double series = 0;
  for (int n = 25; n >= 5; n -= 2) {
    series = series * z + 1.0 / n;
  }
  constexpr Double2 kThird = {1.0 / 3, 0x1.5555555555555p-56};
  const Double2 cubic = product(product(square, s), kThird);
  const Double2 first = fast_sum(s.high, cubic.high);
  const double rest = first.low + (s.low + cubic.low + z * z * s.high * series);
  const Double2 ln_m = {2 * first.high, 2 * rest};

  const Double2 high = sum(k * kLn2High, ln_m.high);
  const Double2 shift = product(k, kLn2Low);
  const Double2 all = sum(high.high, shift.high);
  return fast_sum(all.high, all.low + (high.low + shift.low + k * kLn2LowRest + ln_m.low));
}

bool is_nan(double x) {
  return x != x;
}

double magnitude(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~kSignBit);
}

bool is_negative(double x) {
  return (std::bit_cast<std::uint64_t>(x) & kSignBit) != 0;
}

enum class Parity : std::uint8_t { kFraction, kEven, kOdd };

/// What kind of number a finite y >= 0 is.
Parity parity(double y) {
  if (y >= 0x1p53) {
    return Parity::kEven;
  }
  const auto whole = static_cast<std::int64_t>(y);
  if (static_cast<double>(whole) != y) {
    return Parity::kFraction;
  }
  return whole % 2 == 0 ? Parity::kEven : Parity::kOdd;
}

/// x^y for x > 0, neither 1, 0, inf nor NaN, and y finite and not 0.
double pow_positive(double x, double y) {
  // Beyond 2^64 every x but 1 overflows or vanishes; the exact product below would overflow too.
  if (magnitude(y) > 0x1p64) {
    return (x > 1) == (y > 0) ? kInfinity : 0;
  }
  const Double2 ln_x = log_of(x);
  const Double2 p = product(y, ln_x.high);
  return exp_of(fast_sum(p.high, p.low + y * ln_x.low));
}

}  // namespace

double exp(double x) {
  if (is_nan(x)) {
    return x;
  }
  return exp_of({x, 0});
}

double log(double x) {
  if (is_nan(x)) {
    return x;
  }
  if (x == 0) {
    return -kInfinity;
  }
  if (x < 0) {
    return kNaN;
  }
  if (x == kInfinity) {
    return x;
  }
  return log_of(x).high;
}

double pow(double x, double y) {
  if (y == 0 || x == 1) {
    return 1;
  }
  if (is_nan(x) || is_nan(y)) {
    return kNaN;
  }
  const double base = magnitude(x);
  if (magnitude(y) == kInfinity) {
    if (base == 1) {
      return 1;
    }
    return (base > 1) == (y > 0) ? kInfinity : 0;
  }
  const Parity kind = parity(magnitude(y));
  const double sign = is_negative(x) && kind == Parity::kOdd ? -1 : 1;
  if (base == 0 || base == kInfinity) {
    return sign * ((base == 0) == (y > 0) ? 0 : kInfinity);
  }
  if (x < 0 && kind == Parity::kFraction) {
    return kNaN;
  }
  return base == 1 ? sign : sign * pow_positive(base, y);
}

}  // namespace heddle::exact
