#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/device.h"
#include "ops/bf16.h"
#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// Where the tests of operations run: each backend has a program of the same tests. Ordinary memory
/// of the program is memory that the backend's streams can use.
class TestBackend {
 public:
  virtual ~TestBackend() = default;
  [[nodiscard]] virtual device::Kind kind() const = 0;
  [[nodiscard]] virtual device::Stream& stream() = 0;
};

/// Defined once in each program: op_test_cpu.cc, op_test_cuda.cc.
std::unique_ptr<TestBackend> make_test_backend();

/// What the tests of operations share: a stream, and numbers from a seed.
class OpTest : public testing::Test {
 protected:
  /// Whether a result's bits depend on its own inputs alone, not on what else is computed with it.
  [[nodiscard]] bool gives_one_answer() const { return backend_->kind() == device::Kind::kCpu; }

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
  std::unique_ptr<TestBackend> backend_ = make_test_backend();
  device::Stream& stream_ = backend_->stream();
  OpContext context_{.stream = stream_, .kernels = *kernels_for(backend_->kind())};
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
