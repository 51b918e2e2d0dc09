#pragma once

#include <cstdint>
#include <span>

namespace heddle::store {

/// Rounds the values of a row to int8 in steps of the scale that it returns, max_i |row_i| / 127:
/// symmetric, to nearest. |row_i - scale target_i| is at most scale / 2, but for float32 rounding.
/// A row with nothing above 1e-30 becomes zeros with scale 0; one with a value that is not finite
/// becomes zeros with a scale that is not a number, so that nobody takes it for weights.
///
/// @param target  As long as `row`.
[[nodiscard]] float quantise_row(std::span<const float> row, std::span<std::int8_t> target);

}  // namespace heddle::store
