#pragma once

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/panel_intrinsics.cuh"

/// Numbers of a byte each: integers, and FP8 (E4M3). Both become bfloat16 exactly. Here it is done
/// by integer operations, as GPUs before 8.9 have no instruction for FP8.
namespace heddle::ops::cuda {

/// Two pairs of bfloat16 of four integers of eight bits. 128 and more, up to 255, is a byte behind
/// 0x43; seven bits are taken so, and 128 less, or 256 of what is negative.
__device__ __forceinline__ void int8_pairs(std::uint32_t codes, std::uint32_t (&pairs)[2]) {
  constexpr std::uint32_t kUp = 0x43434343U;
  constexpr std::uint32_t kFirst = 0x4140U;  // Bytes 0 and 1, each before one of kUp.
  constexpr std::uint32_t kLast = 0x4342U;
  const std::uint32_t seven = codes & 0x7f7f7f7fU;
  const std::uint32_t less = codes & 0x80808080U;
  pairs[0] = subtract_bf16_pairs(select_bytes(seven, kUp, kFirst), select_bytes(less, kUp, kFirst));
  pairs[1] = subtract_bf16_pairs(select_bytes(seven, kUp, kLast), select_bytes(less, kUp, kLast));
}

/// The same of four E4M3. Exponent and mantissa move into place, and as the exponent's bias is 127
/// there and 7 here, what they make is 2^120 too small.
__device__ __forceinline__ void e4m3_pairs(std::uint32_t codes, std::uint32_t (&pairs)[2]) {
  constexpr std::uint32_t kScale = 0x7b807b80U;  // 2^120
  const auto pair_of = [](std::uint32_t two) {
    return multiply_bf16_pairs((two & 0x80008000U) | (two >> 4U & 0x07f007f0U), kScale);
  };
  pairs[0] = pair_of(select_bytes(codes, 0, 0x1404U));  // Bytes 0 and 1, each behind 0.
  pairs[1] = pair_of(select_bytes(codes, 0, 0x3424U));
}

/// What codes of a row are: numbers of at most kMax, by a byte each.
struct Int8Codes {
  static constexpr float kMax = 127.0F;

  __device__ static void pairs(std::uint32_t codes, std::uint32_t (&two)[2]) {
    int8_pairs(codes, two);
  }
  /// The nearest, ties to even.
  __device__ static std::uint32_t code(float number) {
    constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer.
    return static_cast<std::uint32_t>(static_cast<std::int32_t>((number + kRound) - kRound)) &
           0xffU;
  }
};
struct E4m3Codes {
  static constexpr float kMax = 448.0F;

  __device__ static void pairs(std::uint32_t codes, std::uint32_t (&two)[2]) {
    e4m3_pairs(codes, two);
  }
  __device__ static std::uint32_t code(float number) {
    constexpr float kRound = 8388608.0F;      // 2^23, likewise,
    constexpr float kSubnormals = 512.0F;     // of which each stands for 2^-9.
    constexpr std::uint32_t kBias = 127 - 7;  // Of a float's exponent, beyond an E4M3's.
    const std::uint32_t bits = float_bits(number);
    const std::uint32_t sign = bits >> 24U & 0x80U;
    const std::uint32_t positive = bits & 0x7fffffffU;
    const float size = bits_float(positive);
    if (size < 0.015625F) {  // Below the least normal number.
      return sign | static_cast<std::uint32_t>((size * kSubnormals + kRound) - kRound);
    }
    return sign | (((positive + 0x7ffffU + (bits >> 20U & 1U)) >> 20U) - (kBias << 3U));
  }
};

/// A row of codes to be read as elements: multiplied with its scale.
template <class Codes>
struct CodeRow {
  const std::byte* codes;
  float scale;
};
template <class Codes>
__device__ __forceinline__ float4 load_quad(const CodeRow<Codes>& from, std::int64_t at) {
  std::uint32_t two[2];
  Codes::pairs(*reinterpret_cast<const std::uint32_t*>(from.codes + at), two);
  return make_float4(bf16_low(two[0]) * from.scale,
                     bf16_high(two[0]) * from.scale,
                     bf16_low(two[1]) * from.scale,
                     bf16_high(two[1]) * from.scale);
}
template <class Codes>
__device__ __forceinline__ float load_element(const CodeRow<Codes>& from, std::int64_t at) {
  std::uint32_t two[2];
  Codes::pairs(static_cast<std::uint32_t>(from.codes[at]), two);
  return bf16_low(two[0]) * from.scale;
}

/// A row to be written as codes (ops/kv_row.h): first what is largest of it is found out, by its
/// warp together, and then the codes of what is divided by the scale.
class LargestOfRow {
 public:
  /// All lanes call it, with what each has seen. Not a number where one is not finite.
  template <class Codes>
  [[nodiscard]] __device__ float scale() const {
    constexpr std::uint32_t kLeast = 0x00800000U;
    constexpr std::uint32_t kNan = 0x7fc00000U;
    const float largest = warp_max(largest_);
    const bool finite = warp_ballot(infinite_) == 0;
    const std::uint32_t bits = (float_bits(largest / Codes::kMax) + 0xffffU) & 0xffff0000U;
    return bits_float(!finite ? kNan : bits > kLeast ? bits : kLeast);
  }

  __device__ __forceinline__ void see(float value) {
    const std::uint32_t bits = float_bits(value) & 0x7fffffffU;
    infinite_ = infinite_ || bits >= 0x7f800000U;
    largest_ = fmaxf(largest_, bits_float(bits));
  }

 private:
  float largest_ = 0.0F;
  bool infinite_ = false;
};
__device__ __forceinline__ void store_element(LargestOfRow& to, std::int64_t, float value) {
  to.see(value);
}
__device__ __forceinline__ void store_quad(LargestOfRow& to, std::int64_t, const float4& values) {
  to.see(values.x);
  to.see(values.y);
  to.see(values.z);
  to.see(values.w);
}

template <class Codes>
struct CodesOfRow {
  std::byte* codes;
  float scale;

  __device__ __forceinline__ std::uint32_t code(float value) const {
    return scale == scale ? Codes::code(value / scale) : 0U;
  }
};
template <class Codes>
__device__ __forceinline__ void store_element(const CodesOfRow<Codes>& to,
                                              std::int64_t at,
                                              float value) {
  to.codes[at] = static_cast<std::byte>(to.code(value));
}
template <class Codes>
__device__ __forceinline__ void store_quad(const CodesOfRow<Codes>& to,
                                           std::int64_t at,
                                           const float4& values) {
  *reinterpret_cast<std::uint32_t*>(to.codes + at) = to.code(values.x) | to.code(values.y) << 8U |
                                                     to.code(values.z) << 16U |
                                                     to.code(values.w) << 24U;
}

}  // namespace heddle::ops::cuda
