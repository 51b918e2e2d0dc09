#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace heddle {

/// The bits of the float32 that a float16 is, exactly. Branch-free, so that a loop over it becomes
/// vector code: exponent and mantissa move into place, and one multiplication by 2^112 corrects the
/// exponent's bias, which also normalises subnormals. Infinities and NaNs, whose exponent must
/// become all ones, are picked by a mask.
[[nodiscard]] inline std::uint32_t f32_bits_of_f16(std::uint16_t half) {
  const std::uint32_t sign = (std::uint32_t{half} & 0x8000U) << 16U;
  const std::uint32_t magnitude = (std::uint32_t{half} & 0x7FFFU) << 13U;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const bool special = magnitude >= 0x0F800000U;  // Exponent 31.
  const std::uint32_t bits =
      special ? magnitude | 0x7F800000U : std::bit_cast<std::uint32_t>(scaled);
  return sign | bits;
}

/// The bits of the float32 that a bfloat16 is, exactly.
[[nodiscard]] inline std::uint32_t f32_bits_of_bf16(std::uint16_t half) {
  return std::uint32_t{half} << 16U;
}

/// Twice what the sixteen numbers of four bits are (E2M1: sign, two bits of exponent, one of
/// mantissa). Of MXFP4 (Open Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0)
/// 32 of them share a scale.
inline constexpr std::array<std::int8_t, 16> kTwiceFloat4 = {
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Half of that scale, a power of two of eight bits (E8M0): 2^(scale - 128). Of 255, which stands
/// for no number, 2^127, as llama.cpp takes it.
[[nodiscard]] inline float half_of_e8m0(std::uint8_t scale) {
  const std::uint32_t subnormal = 0x00200000U << (scale & 1U);
  return std::bit_cast<float>(scale < 2 ? subnormal : (std::uint32_t{scale} - 1) << 23U);
}

}  // namespace heddle
