#include "engine/survey.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "engine/decoder_rig.h"
#include "engine/test_host.h"
#include "ops/attention.h"
#include "ops/fused.h"
#include "ops/rope_append.h"
#include "ops/silu_mul.h"
#include "ops/wait.h"

namespace heddle::engine {
namespace {

/// What a survey was asked for, by kernels that have no state of their own.
struct Surveyed {
  std::vector<std::int64_t> tokens{};  ///< Of products of gates and ups, one for each pass.
  int products = 0;
  int ended = 0;
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
Surveyed surveyed;

const ops::KernelTable& surveying_kernels() {
  static const ops::KernelTable kTable = [] {
    ops::KernelTable table{};
    table.rms_norm = [](device::Stream& /*stream*/, const ops::RmsNormArgs& /*args*/) {};
    table.rope_append = [](device::Stream& /*stream*/, const ops::RopeAppendArgs& /*args*/) {};
    table.attention = [](device::Stream& /*stream*/, const ops::AttentionArgs& /*args*/) {};
    table.wait = [](device::Stream& /*stream*/, const ops::WaitArgs& /*args*/) {};
    table.linear = [](device::Stream& /*stream*/, const ops::LinearArgs& /*args*/) {
      ++surveyed.products;
    };
    table.linear_silu = [](device::Stream& /*stream*/, const ops::LinearSiluArgs& args) {
      surveyed.tokens.push_back(args.linear.x.shape[0]);
      return true;
    };
    table.rope_normalises = true;
    table.narrow_from = 9;
    return table;
  }();
  return kTable;
}

TEST(SurveyProducts, AreOfFullPassesAndOfDecodeStepsOfALayer) {
  TestHost host(128, 4096);
  const LoadedModel model = host.load(golden_directory() / "mistral-plain", spec::DType::kBf16);
  DecoderRig rig(host, model, all_layers(model.spec), ImageIs::kAbsent);
  ops::KernelTable kernels{};
  kernels.begin_survey = [](device::Stream& /*stream*/, Duration most) {
    EXPECT_GT(most, Duration::zero());
    return &surveying_kernels();
  };
  kernels.end_survey = [](device::Stream& /*stream*/) -> std::int64_t { return ++surveyed.ended; };
  rig.use(kernels);
  surveyed = {};
  rig.survey();
  ASSERT_FALSE(surveyed.tokens.empty());
  EXPECT_EQ(surveyed.tokens.front(), DecoderRig::kTokensMax);
  EXPECT_EQ(std::vector(surveyed.tokens.begin() + 1, surveyed.tokens.end()),
            (std::vector<std::int64_t>{
                10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128}));
  EXPECT_EQ(surveyed.products, 3 * static_cast<int>(surveyed.tokens.size()))
      << "queries, keys and values; out; down";
  EXPECT_EQ(surveyed.ended, 1);
}

TEST(SurveyProducts, WhereThereIsNoChoiceNothingIsAsked) {
  TestHost host(128, 4096);
  const LoadedModel model = host.load(golden_directory() / "mistral-plain", spec::DType::kBf16);
  DecoderRig rig(host, model, all_layers(model.spec), ImageIs::kAbsent);
  surveyed = {};
  rig.survey();  // On a CPU.
  ops::KernelTable kernels{};
  kernels.begin_survey = [](device::Stream& /*stream*/, Duration /*most*/) {
    return static_cast<const ops::KernelTable*>(nullptr);
  };
  rig.use(kernels);
  rig.survey();
  EXPECT_TRUE(surveyed.tokens.empty());
  EXPECT_EQ(surveyed.ended, 0);
}

}  // namespace
}  // namespace heddle::engine
