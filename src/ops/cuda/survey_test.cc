#include "ops/cuda/survey.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/driver_library.h"
#include "base/test_places.h"
#include "ops/add_norm.h"
#include "ops/fused.h"
#include "ops/gated_delta.h"
#include "ops/gelu_mul.h"
#include "ops/op_test.h"
#include "ops/rescale.h"
#include "ops/sigmoid_mul.h"
#include "ops/wait.h"

namespace heddle::ops::cuda {
namespace {

/// Which ways of products are chosen. By the emulated library's word the second of three is the
/// fastest, and all take seconds; heddle's own kernels take what they take.
class SurveyTest : public OpTest {
 protected:
  void SetUp() override {
    Result<DriverLibrary> library = DriverLibrary::open(places::kCublasltEmulator);
    ASSERT_TRUE(library && library->find("heddle_cublaslt_emulator_products", products_) &&
                library->find("heddle_cublaslt_emulator_last_way", last_way_) &&
                library->find("heddle_cublaslt_emulator_set_time", set_time_));
    const char* named = std::getenv("HEDDLE_CUBLASLT");  // NOLINT(concurrency-mt-unsafe)
    if (named == nullptr || std::string(named) != places::kCublasltEmulator) {
      GTEST_SKIP() << "only the emulated library says how long it takes";
    }
  }
  void TearDown() override {
    if (set_time_ != nullptr) {
      set_times(30.0, 10.0, 20.0);
    }
  }

  void set_times(double first, double second, double third) const {
    set_time_(0, first);
    set_time_(1, second);
    set_time_(2, third);
  }

  [[nodiscard]] LinearArgs product(std::int64_t tokens) {
    return {.x = bf16_matrix(x_, tokens, kInputs),
            .weight = bf16_matrix(weight_, kOutputs, kInputs),
            .out = tensor_2d(
                reinterpret_cast<std::byte*>(out_.data()), DType::kBf16, tokens, kOutputs)};
  }
  [[nodiscard]] LinearSiluArgs gated(std::int64_t tokens) {
    return {.linear = product(tokens),
            .out = tensor_2d(
                reinterpret_cast<std::byte*>(gated_.data()), DType::kBf16, tokens, kOutputs / 2)};
  }

  /// Calls `ask` with the kernels of a survey that may take so long.
  template <class Ask>
  void survey(Duration most, const Ask& ask) {
    const KernelTable* kernels = begin_survey(stream_, most);
    ASSERT_NE(kernels, nullptr);
    OpContext context{.stream = stream_, .kernels = *kernels};
    ask(context);
    timed_ = end_survey(stream_);
  }

  /// The library's products that a call took, and by which way the last of them was done.
  template <class Call>
  std::pair<unsigned long, int> taken(const Call& call) {
    const unsigned long before = products_();
    call();
    synchronize();
    return {products_() - before, last_way_()};
  }

  static constexpr std::int64_t kTokensMost = 96;
  static constexpr std::int64_t kInputs = 32;
  static constexpr std::int64_t kOutputs = 48;
  static constexpr Duration kLong = std::chrono::hours(1);
  const std::vector<std::uint16_t> x_ = rounded(random(kTokensMost * kInputs));
  const std::vector<std::uint16_t> weight_ = rounded(random(kOutputs * kInputs));
  std::vector<std::uint16_t> out_ = std::vector<std::uint16_t>(kTokensMost * kOutputs);
  std::vector<std::uint16_t> gated_ = std::vector<std::uint16_t>(kTokensMost * kOutputs / 2);
  std::int64_t timed_ = 0;  ///< By the last survey.
  unsigned long (*products_)() = nullptr;
  int (*last_way_)() = nullptr;
  void (*set_time_)(int, double) = nullptr;
};

TEST_F(SurveyTest, AProductIsDoneTheWayThatTookLeast) {
  survey(kLong, [&](OpContext& context) { linear(context, product(72)); });
  EXPECT_EQ(timed_, 3);
  const auto once = [&](std::int64_t tokens) {
    return taken([&] { linear(context_, product(tokens)); });
  };
  EXPECT_EQ(once(72), std::pair(1UL, 1));
  EXPECT_EQ(once(80), std::pair(1UL, 0)) << "what was not asked for is done as advised";
  EXPECT_EQ(once(72), std::pair(1UL, 1));
}

TEST_F(SurveyTest, WeightsNeedNotBeThere) {
  LinearArgs args = product(72);
  args.weight.data = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U);
  survey(kLong, [&](OpContext& context) { linear(context, args); });
  synchronize();
}

TEST_F(SurveyTest, WhatWasDoneOnceIsDoneSoForEver) {
  linear(context_, product(72));
  synchronize();
  survey(kLong, [&](OpContext& context) { linear(context, product(72)); });
  EXPECT_EQ(taken([&] { linear(context_, product(72)); }), std::pair(1UL, 0));
  set_times(30.0, 10.0, 1.0);
  survey(kLong, [&](OpContext& context) { linear(context, product(88)); });
  set_times(1.0, 10.0, 30.0);
  survey(kLong, [&](OpContext& context) { linear(context, product(88)); });
  EXPECT_EQ(taken([&] { linear(context_, product(88)); }), std::pair(1UL, 2));
}

TEST_F(SurveyTest, WhereThereIsNoTimeTheFirstAdviceIsTaken) {
  EXPECT_EQ(taken([&] {
              survey(Duration::zero(), [&](OpContext& context) { linear(context, product(72)); });
            }).first,
            0U);
  EXPECT_EQ(taken([&] { linear(context_, product(72)); }), std::pair(1UL, 0));
}

TEST_F(SurveyTest, GatesAreMadeAtTheEndOfAProductWhereThatIsFaster) {
  survey(kLong, [&](OpContext& context) { linear_silu(context, gated(40)); });
  EXPECT_EQ(taken([&] { linear_silu(context_, gated(40)); }).first, 0U);
  const std::vector<std::uint16_t> own = gated_;
  set_times(0.0, -1e6, 0.0);  // Nothing is as fast as what ends before it begins.
  survey(kLong, [&](OpContext& context) { linear_silu(context, gated(56)); });
  EXPECT_EQ(taken([&] { linear_silu(context_, gated(56)); }), std::pair(1UL, 1));
  for (std::size_t i = 0; i < 40 * kOutputs / 2; ++i) {  // The same tokens, rounded once more.
    EXPECT_NEAR(
        from_bf16(gated_[i]), from_bf16(own[i]), 0x1p-6F * std::abs(from_bf16(own[i])) + 0.02F);
  }
}

TEST_F(SurveyTest, OurKernelTakesABatchWhereItIsFasterAndThenForEver) {
  const auto ask = [&](std::int64_t tokens) {
    survey(kLong, [&](OpContext& context) { linear(context, product(tokens)); });
    return taken([&] { linear(context_, product(tokens)); });
  };
  EXPECT_EQ(taken([&] { linear(context_, product(64)); }).first, 1U) << "not asked for";
  EXPECT_EQ(ask(40).first, 0U);
  const std::vector<std::uint16_t> own = out_;
  set_times(0.0, -1e6, 0.0);
  EXPECT_EQ(ask(56), std::pair(1UL, 1));
  EXPECT_EQ(ask(40).first, 0U);
  set_times(30.0, 10.0, 20.0);
  EXPECT_EQ(ask(56), std::pair(1UL, 1));
  for (std::size_t i = 0; i < 40 * kOutputs; ++i) {
    EXPECT_NEAR(
        from_bf16(out_[i]), from_bf16(own[i]), 0x1p-7F * std::abs(from_bf16(own[i])) + 0.01F);
  }
}

TEST_F(SurveyTest, ItsOtherKernelsDoNothing) {
  std::vector<float> data(8, 3.0F);
  survey(kLong, [&](OpContext& context) {
    context.kernels.wait(stream_, {});
    const auto rows = matrix_of(data.data(), 2, 4);
    context.kernels.rms_norm(stream_, {.x = rows, .weight = {}, .out = rows});
    context.kernels.add_norm(stream_, {.x = rows, .sum = rows});
    context.kernels.gated_delta(stream_, {});
    context.kernels.gelu_mul(stream_, {.gate_up = rows, .out = rows});
    context.kernels.rescale(stream_, {.x = rows, .factor = 2.0F, .out = rows});
    context.kernels.sigmoid_mul(stream_, {.gate = rows, .rows = rows});
  });
  synchronize();
  EXPECT_EQ(data, std::vector<float>(8, 3.0F));
}

}  // namespace
}  // namespace heddle::ops::cuda
