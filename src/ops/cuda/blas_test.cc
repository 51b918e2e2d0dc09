#include "ops/cuda/blas.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/driver_library.h"
#include "base/test_places.h"
#include "ops/cuda/kernels.h"
#include "ops/op_test.h"

namespace heddle::ops::cuda {
namespace {

/// How linear() uses the library. Which numbers come out is linear_test's business.
class BlasTest : public OpTest {
 protected:
  void SetUp() override {
    Result<DriverLibrary> library = DriverLibrary::open(places::kCublasltEmulator);
    ASSERT_TRUE(library && library->find("heddle_cublaslt_emulator_products", products_));
    const char* named = std::getenv("HEDDLE_CUBLASLT");  // NOLINT(concurrency-mt-unsafe)
    if (named == nullptr || std::string(named) != places::kCublasltEmulator) {
      GTEST_SKIP() << "only the emulated library counts what it does";
    }
  }

  /// Products of the library's that a linear() of `tokens` x `inputs`, of tens, took; all right.
  unsigned long products_of(std::int64_t tokens, std::int64_t inputs, bool bf16) {
    const std::vector<float> x(static_cast<std::size_t>(tokens * inputs), 2.0F);
    const std::vector<float> weight(static_cast<std::size_t>(kOutputs * inputs), 5.0F);
    const auto half_x = rounded(x);
    const auto half = rounded(weight);
    std::vector<float> out(static_cast<std::size_t>(tokens * kOutputs));
    const unsigned long before = products_();
    linear(context_,
           {.x = bf16 ? bf16_matrix(half_x, tokens, inputs)
                      : ConstTensorRef(matrix_of(x.data(), tokens, inputs)),
            .weight = bf16 ? bf16_matrix(half, kOutputs, inputs)
                           : ConstTensorRef(matrix_of(weight.data(), kOutputs, inputs)),
            .out = matrix_of(out.data(), tokens, kOutputs)});
    synchronize();
    EXPECT_EQ(out, std::vector<float>(out.size(), 10.0F * static_cast<float>(inputs)));
    return products_() - before;
  }

  static constexpr std::int64_t kOutputs = 24;
  unsigned long (*products_)() = nullptr;
};

TEST_F(BlasTest, DoesLargeProductsAndOurKernelsSmallOnes) {
  for (const bool bf16 : {false, true}) {
    EXPECT_EQ(products_of(40, 64, bf16), 1U);
    EXPECT_EQ(products_of(40, 64, bf16), 1U) << "as it was advised before";
    EXPECT_EQ(products_of(1, 64, bf16), 0U);
  }
}

TEST_F(BlasTest, WhatTheLibraryDeclinesOurKernelsDo) {
  EXPECT_EQ(products_of(40, 63, true), 0U);
  EXPECT_EQ(products_of(40, 63, true), 0U);
}

TEST_F(BlasTest, WithoutALibraryOurKernelsDoAll) {
  // NOLINTBEGIN(concurrency-mt-unsafe)
  ::setenv("HEDDLE_CUBLASLT", "none", 1);
  for (const bool bf16 : {false, true}) {
    EXPECT_EQ(products_of(40, 64, bf16), 0U);
  }
  ::setenv("HEDDLE_CUBLASLT", "/no/such/library", 1);
  EXPECT_EQ(BlasLibrary::open().error().code, Code::kUnavailable);
  ::setenv("HEDDLE_CUBLASLT", places::kCublasltEmulator, 1);
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST_F(BlasTest, OnlyWithADriverThatIsNotTheInstalledOneIsNoLibraryLookedFor) {
  // NOLINTBEGIN(concurrency-mt-unsafe)
  const char* named = std::getenv("HEDDLE_CUDA_DRIVER");
  const std::string before = named == nullptr ? "" : named;
  const auto trouble_with = [](const char* driver) {
    ::setenv("HEDDLE_CUDA_DRIVER", driver, 1);
    const auto library = BlasLibrary::open();
    return library ? std::string() : library.error().message;
  };
  ::unsetenv("HEDDLE_CUBLASLT");
  EXPECT_EQ(trouble_with("/somewhere/libcuda.so.1"), "HEDDLE_CUDA_DRIVER names another driver");
  EXPECT_NE(trouble_with("libcuda.so.1"), "HEDDLE_CUDA_DRIVER names another driver");
  ::setenv("HEDDLE_CUBLASLT", places::kCublasltEmulator, 1);
  if (named == nullptr) {
    ::unsetenv("HEDDLE_CUDA_DRIVER");
  } else {
    ::setenv("HEDDLE_CUDA_DRIVER", before.c_str(), 1);
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST_F(BlasTest, ProductsCanBeRecorded) {
  constexpr std::int64_t kTokens = 20;
  std::vector<std::uint16_t> x = rounded(std::vector<float>(kTokens * 8, 1.0F));
  const auto weight = rounded(std::vector<float>(8 * 8, 1.0F));
  const std::vector<std::int8_t> int8(8 * 8, std::int8_t{3});
  const std::vector<float> scale(8, 2.0F);
  std::vector<float> out(kTokens * 8);
  std::vector<float> out_int8(kTokens * 8);
  const auto enqueue = [&] {
    linear(context_,
           {.x = bf16_matrix(x, kTokens, 8),
            .weight = bf16_matrix(weight, 8, 8),
            .out = matrix_of(out.data(), kTokens, 8)});
    linear(context_,
           {.x = bf16_matrix(x, kTokens, 8),
            .weight = tensor_2d(reinterpret_cast<const std::byte*>(int8.data()), DType::kI8, 8, 8),
            .scale = vector_of(scale.data(), 8),
            .out = matrix_of(out_int8.data(), kTokens, 8)});
  };
  enqueue();  // What is recorded has been enqueued once before.
  synchronize();
  ASSERT_TRUE(stream_.begin_capture());
  enqueue();
  const auto graph = stream_.end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  std::fill(x.begin(), x.end(), to_bf16(2.0F));
  const unsigned long before = products_();
  stream_.replay(**graph);
  stream_.replay(**graph);
  synchronize();
  EXPECT_EQ(products_() - before, 2U);
  EXPECT_EQ(out, std::vector<float>(out.size(), 16.0F));
  EXPECT_EQ(out_int8, std::vector<float>(out.size(), 96.0F));
}

TEST_F(BlasTest, AddsBiasAndResidualInPlace) {
  constexpr std::int64_t kTokens = 20;
  const std::vector<float> x(kTokens * 4, 1.0F);
  const std::vector<float> weight(4 * 4, 1.0F);
  const std::vector<float> bias{10, 20, 30, 40, 0, 0, 0, 0};
  std::vector<float> out(kTokens * 4, 100.0F);
  const unsigned long before = products_();
  linear(context_,
         {.x = matrix_of(x.data(), kTokens, 4),
          .weight = matrix_of(weight.data(), 4, 4),
          .bias = vector_of(bias.data(), 4),
          .residual = matrix_of(out.data(), kTokens, 4),
          .out = matrix_of(out.data(), kTokens, 4)});
  synchronize();
  EXPECT_EQ(products_() - before, 1U);
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], 104.0F + bias[i % 4]);
  }
}

}  // namespace
}  // namespace heddle::ops::cuda
