#pragma once

namespace heddle::exact {

// Elementary functions whose results have the same bits on every machine. libm's differ between
// versions and instruction sets, so code that must replay (policy/, core/, sim/) calls these. They
// use only +, -, *, / of IEEE 754 binary64, rounded to nearest, and integer work on the bits.
// Within 1 ulp of the true value (tested on dense sweeps), so within 2 ulp of any good libm.
// std::sqrt, std::ceil and std::floor are exact by IEEE 754 and need no replacement.

/// e^x. exp(-inf) = 0, exp(inf) = inf, exp(NaN) = NaN. Above 709.78 it overflows to inf; below
/// -708.40 results are subnormal, below -745.13 they are 0.
[[nodiscard]] double exp(double x);

/// The natural logarithm. log(+-0) = -inf, log(x < 0) = NaN, log(inf) = inf, log(1) = +0;
/// subnormal x are as precise as any.
[[nodiscard]] double log(double x);

/// x^y. The special cases are those of C's pow: pow(x, 0) = 1 and pow(1, y) = 1 even for NaN;
/// a negative x needs an integer y (odd ones keep the sign), otherwise NaN; pow(+-0, y < 0) = inf,
/// negative for -0 and odd y; |x| < 1 to the inf is 0, |x| > 1 is inf. Powers that a double holds
/// exactly, as 3^20 or 2.5^3, are exact.
[[nodiscard]] double pow(double x, double y);

}  // namespace heddle::exact
