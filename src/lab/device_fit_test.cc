#include "lab/device_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

spec::ModelSpec small_model() {
  spec::ModelSpec model;
  model.hidden = 128;
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.intermediate = 384;
  model.vocab = 300;
  model.max_position = 512;
  return model;
}

/// Steps that take what `fit` says.
Calibration measured_as(const DeviceFit& fit) {
  Calibration measured{.model = small_model(),
                       .image_bytes = 1'400'000,
                       .memory = 8U << 20U,
                       .page_bytes = 65536,
                       .copy_alone = 1e6,
                       .copy_decoding = 9e5,
                       .maps = {{.pages = 32, .map = 64e-6, .unmap = 32e-6}}};
  for (const std::int64_t tokens : {16, 64, 256}) {
    for (const std::int64_t cached : {0, 32}) {
      measured.steps.push_back(
          {.tokens = tokens, .rows = 1, .chunks = {{.tokens = tokens, .cached = cached}}});
    }
    measured.steps.push_back({.tokens = tokens / 16, .rows = tokens / 16, .context = tokens * 10});
    measured.steps.push_back({.tokens = tokens / 16, .rows = tokens / 16, .context = tokens});
  }
  for (StepSample& sample : measured.steps) {
    sample.seconds = predict(fit, sim::shape_of(measured.model), sample);
  }
  return measured;
}

TEST(FitDevice, FindsTheTermsThatStepsAreMadeOf) {
  const DeviceFit truth{
      .fixed = 2e-3, .flops = 5e9, .context_token = 3e-8, .prefill_token_pair = 4e-9};
  const DeviceFit fit = fit_device(measured_as(truth));
  EXPECT_NEAR(fit.fixed, truth.fixed, 1e-6);
  EXPECT_NEAR(fit.flops, truth.flops, 1e6);
  EXPECT_NEAR(fit.context_token, truth.context_token, 1e-11);
  EXPECT_NEAR(fit.prefill_token_pair, truth.prefill_token_pair, 1e-12);
  EXPECT_NEAR(fit.map_page, 1.5e-6, 1e-12);
  EXPECT_LT(fit.error, 1e-6);
}

TEST(FitDevice, NoTermIsNegative) {
  Calibration measured = measured_as({.fixed = 20e-3, .flops = 1e10});
  for (StepSample& sample : measured.steps) {
    sample.seconds -= 1e-8 * static_cast<double>(sample.context);
  }
  const DeviceFit fit = fit_device(measured);
  EXPECT_EQ(fit.context_token, 0);
  EXPECT_NEAR(fit.fixed, 20e-3, 1e-3);
}

/// The entries say to the simulator's model of steps what the fit says.
TEST(SimulatorFiles, MeanTheSame) {
  const DeviceFit truth{
      .fixed = 20e-3, .flops = 5e9, .context_token = 3e-8, .prefill_token_pair = 4e-9};
  const Calibration measured = measured_as(truth);
  const auto files = simulator_files(measured, truth, "mine");
  ASSERT_EQ(files.size(), 6U);
  const auto value = [&](const std::string& file, const std::string& key) {
    const std::string& text = files.at(file);
    return std::stod(text.substr(text.find(key + ": ") + key.size() + 2));
  };
  sim::GpuProfile gpu;
  gpu.flops = value("gpus.yaml", "flops");
  gpu.bandwidth = value("gpus.yaml", "bandwidth");
  gpu.kv_efficiency = value("gpus.yaml", "kv");
  gpu.prefill_self = value("gpus.yaml", "prefill_self");
  gpu.prefill_cached = value("gpus.yaml", "prefill_cached");
  gpu.pointwise_overhead = value("gpus.yaml", "pointwise_overhead") * 1e-9;
  const sim::ModelShape shape = sim::shape_of(measured.model);
  for (const StepSample& sample : measured.steps) {
    const double time = sim::gpu_time(shape,
                                      gpu,
                                      1,
                                      {.tokens = sample.tokens,
                                       .rows = sample.rows,
                                       .context_tokens = sample.context,
                                       .chunks = sample.chunks})
                            .total();
    EXPECT_NEAR(time, sample.seconds, 1e-4 * sample.seconds);
  }
  EXPECT_EQ(value("engines.yaml", "fixed"), 0);
  EXPECT_EQ(value("cluster.yaml", "pcie"), 1e6);
  EXPECT_THAT(files.at("rules.yaml"), testing::HasSubstr("context: 512"));
}

constexpr EngineLoad kDecode{.sequences = 4};
constexpr EngineLoad kPrefill{.tokens = 64};

TEST(FitDevice, FindsWhatAnEngineBesideAdds) {
  Calibration measured = measured_as({.fixed = 20e-3, .flops = 1e10});
  EXPECT_EQ(fit_device(measured).co_running, std::nullopt);
  const auto add = [&](const EngineLoad& other, Standing standing, double alone, double together) {
    measured.co_runs.push_back({.own = kDecode,
                                .other = other,
                                .standing = standing,
                                .alone = alone,
                                .together = together,
                                .other_alone = alone,
                                .other_together = 2 * alone});
  };
  add(kDecode, Standing::kEqual, 1e-3, 2.8e-3);
  add(kPrefill, Standing::kEqual, 1e-3, 9e-3);
  add(kDecode, Standing::kBelow, 1e-3, 1.1e-3);
  const DeviceFit fit = fit_device(measured);
  EXPECT_NEAR(fit.co_running.value_or(0), 1.8, 1e-9) << "by equals that do the same";
  EXPECT_THAT(simulator_files(measured, fit, "mine").at("gpus.yaml"),
              testing::HasSubstr("co_running: 1.8"));
  const auto rows = co_run_table(measured, fit);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(
      rows[2],
      testing::ElementsAre("decode of 4", "prefill of 64", "1", "9", "9", "2.8", "2 times"));
  EXPECT_EQ(rows[3][1], "decode of 4, below it");
  EXPECT_EQ(rows[3][5], "-") << "the law is for equals";

  measured.co_runs.clear();
  add(kDecode, Standing::kEqual, 1e-3, 0.9e-3);
  EXPECT_EQ(fit_device(measured).co_running, 0) << "an engine beside makes none faster";
}

TEST(CalibrationTables, HaveARowForEachMeasurement) {
  const DeviceFit fit{.fixed = 20e-3, .flops = 1e10};
  const Calibration measured = measured_as(fit);
  EXPECT_EQ(step_table(measured, fit).size(), 1 + measured.steps.size());
  EXPECT_EQ(step_table(measured, fit)[3][0], "decode");
  EXPECT_EQ(link_table(measured)[3][1], "2 us / 1 us");
}

}  // namespace
}  // namespace heddle::lab
