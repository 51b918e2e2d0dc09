#include "store/convert.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "spec/f8_panels.h"

namespace heddle::store {
namespace {

using spec::DType;

/// Adding 0x7FFF, and one more where the last kept bit is odd, carries exactly when rounding to
/// nearest even goes up. A NaN would carry into infinity and gets its quiet bit instead.
std::uint16_t bf16_of_f32(std::uint32_t bits) {
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (bits >> 16U) | 0x40U;
  return static_cast<std::uint16_t>(nan ? quiet : rounded);
}

template <class From, class To, class Function>
void each(const std::byte* source, std::byte* target, std::size_t count, Function function) {
  for (std::size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    const To to = function(from);
    std::memcpy(target + i * sizeof(To), &to, sizeof(To));
  }
}

/// Numbers of blocks, whole ones.
void decode(StoredType from, const std::byte* source, float* numbers, std::size_t count) {
  if (from != StoredType::kF8Scaled) {
    const auto type = block_type_of(from);
    HEDDLE_CHECK(type.has_value());
    gguf::decode(*type, source, numbers, count);
    return;
  }
  for (std::size_t done = 0; done < count; done += spec::kF8Inputs) {
    float scale = 0.0F;
    std::memcpy(&scale, source, sizeof(scale));
    for (std::size_t i = sizeof(scale); i < static_cast<std::size_t>(spec::kF8Bytes); ++i) {
      *numbers++ = scale * spec::f32_of_e4m3(std::to_integer<std::uint8_t>(source[i]));
    }
    source += spec::kF8Bytes;
  }
}

/// Of blocks: through a buffer of float32, where they are to be something else.
void convert_blocks(
    StoredType from, const std::byte* source, DType to, std::byte* target, std::size_t count) {
  constexpr std::size_t kStep = 2048;
  std::array<float, kStep> numbers;
  for (std::size_t done = 0; done < count; done += kStep) {
    const std::size_t step = std::min(kStep, count - done);
    decode(from, source + stored_bytes(from, done), numbers.data(), step);
    std::byte* const place = target + done * spec::dtype_bytes(to);
    if (to == DType::kF32) {
      std::memcpy(place, numbers.data(), step * sizeof(float));
    } else {
      const auto* read = reinterpret_cast<const std::byte*>(numbers.data());
      each<std::uint32_t, std::uint16_t>(read, place, step, bf16_of_f32);
    }
  }
}

}  // namespace

bool can_convert(StoredType from, DType to) {
  const auto blocks = block_type_of(from);
  const bool known =
      from == StoredType::kF8Scaled || (blocks && gguf::block_shape(*blocks).decodes);
  return known && (to == DType::kF32 || to == DType::kBf16);
}

bool same_bytes(StoredType from, DType to) {
  return (from == StoredType::kF32 && to == DType::kF32) ||
         (from == StoredType::kBf16 && to == DType::kBf16);
}

void convert(
    StoredType from, const std::byte* source, DType to, std::byte* target, std::size_t count) {
  HEDDLE_CHECK(can_convert(from, to));
  if (same_bytes(from, to)) {
    std::memcpy(target, source, count * spec::dtype_bytes(to));
  } else if (from >= StoredType::kBlocks) {
    convert_blocks(from, source, to, target, count);
  } else if (to == DType::kBf16 && from == StoredType::kF32) {
    each<std::uint32_t, std::uint16_t>(source, target, count, bf16_of_f32);
  } else if (to == DType::kBf16) {
    each<std::uint16_t, std::uint16_t>(source, target, count, [](std::uint16_t half) {
      return bf16_of_f32(f32_bits_of_f16(half));
    });
  } else if (from == StoredType::kF16) {
    each<std::uint16_t, std::uint32_t>(source, target, count, f32_bits_of_f16);
  } else {
    each<std::uint16_t, std::uint32_t>(source, target, count, f32_bits_of_bf16);
  }
}

}  // namespace heddle::store
