#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/cpu/cpu_stream.h"
#include "ops/bf16.h"
#include "ops/context.h"
#include "ops/cpu/kernels.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// What the tests of operations share: a CPU stream, and numbers from a seed.
class OpTest : public testing::Test {
 protected:
  OpTest() : stream_(device::ThreadPool::create({}).value(), 0) {}

  void synchronize() { ASSERT_TRUE(stream_.synchronize()); }

  /// Roughly normal numbers of that deviation.
  std::vector<float> random(std::int64_t n, float deviation = 1.0F) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) {
      double sum = 0.0;
      for (int i = 0; i < 4; ++i) {
        sum += static_cast<double>(rng_.below(1U << 24U)) * 0x1p-24 - 0.5;
      }
      value = static_cast<float>(sum * std::sqrt(3.0)) * deviation;
    }
    return values;
  }

  Rng rng_{20240607};
  device::CpuStream stream_;
  OpContext context_{.stream = stream_, .kernels = cpu::cpu_kernels()};
};

inline std::vector<std::uint16_t> rounded(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) {
    out.push_back(to_bf16(value));
  }
  return out;
}

inline std::vector<float> widened(const std::vector<std::uint16_t>& values) {
  std::vector<float> out;
  for (const std::uint16_t value : values) {
    out.push_back(from_bf16(value));
  }
  return out;
}

inline ConstTensorRef bf16_matrix(const std::vector<std::uint16_t>& values,
                                  std::int64_t rows,
                                  std::int64_t columns) {
  return tensor_2d(reinterpret_cast<const std::byte*>(values.data()), DType::kBf16, rows, columns);
}

/// Equality of bits, so that -0 and 0 or two NaNs are told apart.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

}  // namespace heddle::ops
