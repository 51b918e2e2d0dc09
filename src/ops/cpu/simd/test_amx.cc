#include "ops/cpu/simd/test_amx.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

// What the kernels use of the tile unit, by Intel's description of each instruction.
namespace heddle::ops::cpu::emulated {
namespace {

constexpr int kRows = 16;
constexpr std::size_t kRowBytes = 64;

struct Tile {
  alignas(64) std::byte row[kRows][kRowBytes];

  template <class T>
  [[nodiscard]] T at(int row_index, int index) const {
    T value;
    std::memcpy(&value, row[row_index] + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void set(int row_index, int index, T value) {
    std::memcpy(row[row_index] + static_cast<std::size_t>(index) * sizeof(T), &value, sizeof(T));
  }
};

Tile tiles[8];  // Of the one thread that tests these kernels.

void load(Tile& tile, const void* from, std::int64_t stride) {
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(tile.row[r], static_cast<const std::byte*>(from) + r * stride, kRowBytes);
  }
}

void store(const Tile& tile, void* to, std::int64_t stride) {
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(static_cast<std::byte*>(to) + r * stride, tile.row[r], kRowBytes);
  }
}

float widened(std::uint16_t half) {
  const std::uint32_t bits = std::uint32_t{half} << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// c += a b of pairs of bfloat16.
void add_bf16(Tile& c, const Tile& a, const Tile& b) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kRows; ++n) {
      auto sum = c.at<float>(m, n);
      for (int k = 0; k < kRows; ++k) {
        for (int i = 0; i < 2; ++i) {
          sum += widened(a.at<std::uint16_t>(m, 2 * k + i)) *
                 widened(b.at<std::uint16_t>(k, 2 * n + i));
        }
      }
      c.set(m, n, sum);
    }
  }
}

/// c += a b of fours of bytes.
template <class A, class B>
void add_bytes(Tile& c, const Tile& a, const Tile& b) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kRows; ++n) {
      auto sum = c.at<std::int32_t>(m, n);
      for (int k = 0; k < kRows; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum += std::int32_t{a.at<A>(m, 4 * k + i)} * std::int32_t{b.at<B>(k, 4 * n + i)};
        }
      }
      c.set(m, n, sum);
    }
  }
}

}  // namespace
}  // namespace heddle::ops::cpu::emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadd(tile, from, stride) emulated::load(emulated::tiles[tile], from, stride)
#define _tile_stored(tile, to, stride) emulated::store(emulated::tiles[tile], to, stride)
#define _tile_zero(tile) (emulated::tiles[tile] = {})
#define _tile_dpbf16ps(c, a, b) \
  emulated::add_bf16(emulated::tiles[c], emulated::tiles[a], emulated::tiles[b])
#define _tile_dpbssd(c, a, b)                    \
  emulated::add_bytes<std::int8_t, std::int8_t>( \
      emulated::tiles[c], emulated::tiles[a], emulated::tiles[b])
#define _tile_dpbsud(c, a, b)                     \
  emulated::add_bytes<std::int8_t, std::uint8_t>( \
      emulated::tiles[c], emulated::tiles[a], emulated::tiles[b])
#define _tile_loadconfig(config) static_cast<void>(config)
#define _tile_release() static_cast<void>(0)

#define simd_x86_amx simd_emulated_amx
#include "ops/cpu/simd/x86_amx.cc"
