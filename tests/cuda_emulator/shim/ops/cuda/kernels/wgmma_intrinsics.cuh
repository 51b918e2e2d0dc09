#pragma once

// Stands in for src/ops/cuda/kernels/wgmma_intrinsics.cuh, which says what each of these does. What
// a descriptor and a fragment mean is taken from the PTX ISA ("Matrix Descriptor Format",
// "Strides", "Register Fragments"), not from what kernels do with them.

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

constexpr bool kHasWgmma = true;
inline void lacks_products() {
  ::emulator::fail("a kernel of another GPU");
}

inline std::uint32_t shared_address(const std::byte* at) {
  return ::emulator::shared_address(at);
}

inline std::uint64_t matrix_descriptor(std::uint32_t address,
                                       std::uint32_t leading,
                                       std::uint32_t stride) {
  std::uint64_t descriptor = std::uint64_t{1} << 62U;  // Swizzled by 128 bytes.
  descriptor |= static_cast<std::uint64_t>(address % (1U << 18U) / 16);
  descriptor |= static_cast<std::uint64_t>(leading % (1U << 18U) / 16) << 16U;
  descriptor |= static_cast<std::uint64_t>(stride % (1U << 18U) / 16) << 32U;
  return descriptor;
}
inline std::uint64_t matrix_after(std::uint64_t descriptor, int bytes) {
  if (bytes % 16 != 0) {
    ::emulator::fail("a matrix that does not begin at a multiple of 16");
  }
  return descriptor + static_cast<std::uint64_t>(bytes / 16);
}

/// A matrix of 16-bit elements in shared memory: elements of a line follow each other.
class DescribedMatrix {
 public:
  explicit DescribedMatrix(std::uint64_t descriptor)
      : start_(field(descriptor, 0)),
        leading_(field(descriptor, 16)),
        stride_(field(descriptor, 32)) {
    constexpr std::uint64_t kUnused = 0x3fff'c000'c000'c000U;  // Base offsets among them.
    if (descriptor >> 62U != 1 || (descriptor & kUnused) != 0) {
      ::emulator::fail("a descriptor of no matrix swizzled by 128 bytes");
    }
  }

  /// Elements `at` and the next of a line; `at` is even.
  [[nodiscard]] std::uint32_t pair(unsigned line, unsigned at) const {
    const std::uint32_t plain =
        start_ + line / 8 * stride_ + line % 8 * 128 + at / 64 * leading_ + at % 64 * 2;
    std::uint32_t both;
    std::memcpy(&both, ::emulator::shared_at(plain ^ (plain >> 7U & 7U) << 4U), sizeof(both));
    return both;
  }

 private:
  static std::uint32_t field(std::uint64_t descriptor, unsigned from) {
    return static_cast<std::uint32_t>(descriptor >> from & 0x3fffU) * 16;
  }

  std::uint32_t start_;
  std::uint32_t leading_;
  std::uint32_t stride_;
};

inline float pair_element(std::uint32_t pair, unsigned high) {
  return bits_float(high != 0 ? pair & 0xffff0000U : pair << 16U);
}

inline void show_to_products() {
  ::emulator::show_copies();
}
inline void begin_products() {
  ::emulator::begin_products();
}
inline void commit_products() {
  ::emulator::commit_products();
}
template <int kLeft>
void wait_products() {
  ::emulator::wait_products(kLeft);
}
template <int kTiles>
void settle_sums(float (& /*d*/)[kTiles][4]) {}

/// A lane's rows of the left matrix: 16 elements of row g of its warp's, and of row g + 8.
struct LeftRows {
  float element[2][16];
};

/// d += left b, where `of(k, n)` are elements (k, n) and (k + 1, n), or with kTransposed (k, n) and
/// (k, n + 1), of b.
template <bool kTransposed, int kTiles>
void add_product(float (&d)[kTiles][4], const LeftRows& left, const DescribedMatrix& b) {
  const unsigned t = lane_index() % 4;
  for (unsigned i = 0; i < kTiles; ++i) {
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned column = 8 * i + 2 * t;
      float right[2];
      if constexpr (kTransposed) {
        const std::uint32_t both = b.pair(k, column);
        right[0] = pair_element(both, 0);
        right[1] = pair_element(both, 1);
      } else {
        right[0] = pair_element(b.pair(column, k / 2 * 2), k % 2);
        right[1] = pair_element(b.pair(column + 1, k / 2 * 2), k % 2);
      }
      for (unsigned half = 0; half < 2; ++half) {
        d[i][half * 2] += left.element[half][k] * right[0];
        d[i][half * 2 + 1] += left.element[half][k] * right[1];
      }
    }
  }
}

template <bool kAdd, int kTiles>
void multiply_shared(float (&d)[kTiles][4], std::uint64_t a, std::uint64_t b) {
  ::emulator::begin_product([&d, left = DescribedMatrix(a), right = DescribedMatrix(b)] {
    LeftRows rows;
    const unsigned first = threadIdx.x / kWarpThreads % 4 * 16 + lane_index() / 4;
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned half = 0; half < 2; ++half) {
        rows.element[half][k] = pair_element(left.pair(first + half * 8, k / 2 * 2), k % 2);
      }
    }
    if (!kAdd) {
      std::memset(d, 0, sizeof(d));
    }
    add_product<false>(d, rows, right);
  });
}

template <int kTiles>
void multiply_own(float (&d)[kTiles][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  ::emulator::begin_product([&d, &a, right = DescribedMatrix(b)] {
    struct Fragment {
      std::uint32_t pairs[4];
    };
    Fragment own;
    std::memcpy(own.pairs, a, sizeof(own.pairs));
    const auto all = ::emulator::exchange(own);
    LeftRows rows;
    for (unsigned k = 0; k < 16; ++k) {
      // Columns 2t and 2t + 1 of rows g and g + 8 are in a lane's first two, 2t + 8 and 2t + 9 in
      // the others.
      const Fragment& of = all[lane_index() / 4 * 4 + k % 8 / 2];
      for (unsigned half = 0; half < 2; ++half) {
        rows.element[half][k] = pair_element(of.pairs[k / 8 * 2 + half], k % 2);
      }
    }
    add_product<true>(d, rows, right);
  });
}

}  // namespace heddle::ops::cuda
