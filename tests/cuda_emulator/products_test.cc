#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/threads.h"
#include "ops/cuda/kernels/warp.cuh"
#include "ops/cuda/kernels/wgmma_intrinsics.cuh"

// Products of warpgroups, as tests/cuda_emulator/shim has them.

namespace {

using namespace heddle::ops::cuda;  // NOLINT(google-build-using-namespace): kernels, as they are
                                    // written.

constexpr int kInner = 64;     // Columns of the left matrix: four products.
constexpr int kColumns = 128;  // Of the result.

enum class Slip : std::uint8_t {
  kNone,
  kNotBegun,     // The first product.
  kNotShown,     // What was copied.
  kNotWaited,    // Sums are read too early.
  kOverwritten,  // The left matrix, before the products were waited for.
  kNotAligned,   // Both matrices, to an atom.
};

struct ProductParams {
  const std::uint16_t* a;  // [64, kInner]
  const std::uint16_t* b;  // [kInner, kColumns]
  float* d;                // [64, kColumns]
  Slip slip;
  bool own;  // The left matrix is in registers, and lines of the right one are its rows.
};

/// Where 16 bytes of a line are that is 128 bytes long: in an atom of eight lines each next one has
/// its eight parts in another order.
std::byte* part_of(std::byte* matrix, unsigned line, unsigned part) {
  const unsigned in_atom = line % 8;
  return matrix + line / 8 * 1024 + in_atom * 128 + (part ^ in_atom) * 16;
}

/// Copies 64 elements of each of `lines` lines, `line_stride` elements apart.
void copy_lines(std::byte* matrix,
                const std::uint16_t* from,
                unsigned lines,
                unsigned line_stride) {
  for (unsigned i = threadIdx.x; i < lines * 8; i += blockDim.x) {
    copy_async(part_of(matrix, i / 8, i % 8),
               reinterpret_cast<const std::byte*>(from + i / 8 * line_stride + i % 8 * 8),
               true);
  }
}

/// The same of 64 columns of kInner rows, which become lines.
void put_columns(std::byte* matrix, const std::uint16_t* from, unsigned columns) {
  for (unsigned i = threadIdx.x; i < columns * kInner; i += blockDim.x) {
    const unsigned line = i % columns;
    const unsigned at = i / columns;
    std::byte* to = part_of(matrix, line, at / 8) + at % 8 * 2;
    *reinterpret_cast<std::uint16_t*>(to) = from[at * kColumns + line];
  }
}

void left_fragment(const ProductParams& params, int k, std::uint32_t (&parts)[4]) {
  const unsigned row = threadIdx.x / 32 * 16 + lane_index() / 4;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint16_t* at = params.a + (row + i % 2 * 8) * kInner +
                              static_cast<unsigned>(k) * 16 + i / 2 * 8 + lane_index() % 4 * 2;
    parts[i] = at[0] | static_cast<std::uint32_t>(at[1]) << 16U;
  }
}

HEDDLE_KERNEL(heddle_test_products, ProductParams, 128) {
  HEDDLE_DYNAMIC_SHARED(memory);
  const std::uint32_t past = shared_address(memory) % 1024;
  std::byte* left = memory + (1024 - past) % 1024 + (params.slip == Slip::kNotAligned ? 16 : 0);
  std::byte* right = left + 64 * 128;
  copy_lines(left, params.a, 64, kInner);
  if (params.own) {  // Two panels of 64 columns.
    copy_lines(right, params.b, kInner, kColumns);
    copy_lines(right + kInner * 128, params.b + 64, kInner, kColumns);
  } else {
    put_columns(right, params.b, kColumns);
  }
  copy_async_commit();
  copy_async_wait<0>();
  if (params.slip != Slip::kNotShown) {
    show_to_products();
  }
  __syncthreads();
  float d[kColumns / 8][4] = {};
  std::uint32_t parts[4][4];
  const std::uint64_t a = matrix_descriptor(shared_address(left), 0, 1024);
  const std::uint64_t b =
      matrix_descriptor(shared_address(right), params.own ? kInner * 128 : 0, 1024);
  if (params.slip != Slip::kNotBegun) {
    begin_products();
  }
  for (int k = 0; k < kInner / 16; ++k) {
    if (params.own) {
      left_fragment(params, k, parts[k]);
      multiply_own(d, parts[k], matrix_after(b, k * 16 * 128));
    } else if (k == 0) {
      multiply_shared<false>(d, a, b);
    } else {
      multiply_shared<true>(d, matrix_after(a, k * 32), matrix_after(b, k * 32));
    }
  }
  commit_products();
  if (params.slip == Slip::kOverwritten) {
    __syncthreads();
    for (auto& fragment : parts) {
      std::fill_n(fragment, 4, 0U);
    }
    std::memset(left + threadIdx.x * 64, 0, 64);
    __syncthreads();
  }
  if (params.slip == Slip::kNotWaited) {
    wait_products<1>();
  } else {
    wait_products<0>();
  }
  settle_sums(d);
  const unsigned row = threadIdx.x / 32 * 16 + lane_index() / 4;
  for (unsigned i = 0; i < kColumns / 8 * 4; ++i) {
    const unsigned column = i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
    params.d[(row + i % 4 / 2 * 8) * kColumns + column] = d[i / 4][i % 4];
  }
}

class Products : public testing::TestWithParam<bool> {
 protected:
  Products() {
    for (unsigned i = 0; i < a_.size(); ++i) {
      a_[i] = to_bf16(static_cast<float>(i * 7 % 23) - 11.0F);
    }
    for (unsigned i = 0; i < b_.size(); ++i) {
      b_[i] = to_bf16(static_cast<float>(i * 5 % 19) - 9.0F);
    }
  }

  bool run(Slip slip) {
    const ProductParams params{a_.data(), b_.data(), d_.data(), slip, GetParam()};
    constexpr std::size_t kBytes = 1040 + 64 * 128 + kColumns * 128;
    return emulator::run(
        reinterpret_cast<void*>(heddle_test_products), {}, {128}, kBytes, &params, sizeof(params));
  }

  [[nodiscard]] bool right() const {
    for (unsigned row = 0; row < 64; ++row) {
      for (unsigned column = 0; column < kColumns; ++column) {
        float sum = 0.0F;
        for (unsigned k = 0; k < kInner; ++k) {
          sum += from_bf16(a_[row * kInner + k]) * from_bf16(b_[k * kColumns + column]);
        }
        if (d_[row * kColumns + column] != sum) {
          return false;
        }
      }
    }
    return true;
  }

  alignas(16) std::array<std::uint16_t, 64 * kInner> a_{};
  alignas(16) std::array<std::uint16_t, kInner * kColumns> b_{};
  std::vector<float> d_ = std::vector<float>(64 * kColumns);
};

INSTANTIATE_TEST_SUITE_P(LeftInRegisters, Products, testing::Bool());

TEST_P(Products, AreThoseOfTheMatrices) {
  ASSERT_TRUE(run(Slip::kNone));
  EXPECT_TRUE(right());
}

TEST_P(Products, AreWrongWhereSumsOrOperandsAreTouchedTooEarly) {
  ASSERT_TRUE(run(Slip::kNotWaited));
  EXPECT_FALSE(right());
  ASSERT_TRUE(run(Slip::kOverwritten));
  EXPECT_FALSE(right());
}

TEST_P(Products, AreWrongWhereAtomsAreNotAligned) {
  ASSERT_TRUE(run(Slip::kNotAligned));
  EXPECT_FALSE(right());
}

TEST_P(Products, FailWhereFencesAreMissing) {
  ASSERT_FALSE(run(Slip::kNotBegun));
  EXPECT_EQ(std::string(emulator::last_failure()), "a product that was not begun");
  ASSERT_FALSE(run(Slip::kNotShown));
  EXPECT_EQ(std::string(emulator::last_failure()), "a product may not see what was copied");
}

}  // namespace
