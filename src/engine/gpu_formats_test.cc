// Models in the formats of their files on a GPU: the emulated driver's, or that of the driver that
// HEDDLE_CUDA_DRIVER names.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/generating_rig_test.h"
#include "engine/gguf_golden.h"
#include "engine/launches_test.h"

namespace heddle::engine {
namespace {

class FormatsGpuTest : public OnGpu, public testing::WithParamInterface<const char*> {
 protected:
  static std::filesystem::path file(const char* extension = ".gguf") {
    return golden_directory() / "gguf" / (std::string(GetParam()) + extension);
  }
};

// Of llama.cpp's numbers those of the file's weights in float32; here what goes into products and
// into KV is bfloat16.
TEST_P(FormatsGpuTest, AFileSaysNearlyWhatItsNumbersSay) {
  const FileGolden golden = read_file_golden(file(".json"));
  GeneratingRig rig(file(), spec::DType::kStored, gpu());
  double worst = 0;
  std::size_t compared = 0;
  for (const Said& said : golden.of_numbers) {
    const auto id = static_cast<std::uint64_t>(said.prefix);
    rig.add(id, {golden.ids.begin(), golden.ids.begin() + static_cast<std::ptrdiff_t>(id)}, 1);
    rig.finish({id}, 24);
    std::map<TokenId, double> found;
    for (const auto& each : rig.generated[id].details.front().logprobs) {
      found[each.token] = static_cast<double>(each.logprob);
    }
    rig.engine().remove_sequence(SequenceId{id});
    for (const auto& [token, wanted] : said.likeliest) {
      const auto at = found.find(static_cast<TokenId>(token));
      if (at != found.end()) {
        worst = std::max(worst, std::abs(at->second - wanted));
        ++compared;
      }
    }
  }
  RecordProperty("distance", std::to_string(worst));
  EXPECT_GE(compared, 3 * golden.of_numbers.size());
  EXPECT_LE(worst, 0.06);
}

TEST_P(FormatsGpuTest, StepsAreReplayed) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  const FileGolden golden = read_file_golden(file(".json"));
  GeneratingRig rig(file(), spec::DType::kStored, gpu());
  rig.add(1, {golden.ids.begin(), golden.ids.begin() + 12}, 20);
  rig.finish({1});
  EXPECT_EQ(driver_->calls("cuGraphInstantiateWithFlags"), 1U);
  EXPECT_GT(driver_->calls("cuGraphLaunch"), 15U);
}

/// Launches of layers beside those of plain ones: of matrices whose rows are of several types, a
/// product for each, and of gates and ups the activation by itself.
unsigned long further_launches(const store::ImageLayout& layout) {
  std::map<std::pair<std::int64_t, store::Role>, unsigned long> parts;
  for (const store::ImageTensor& tensor : layout.tensors) {
    if (tensor.role == store::Role::kQkv || tensor.role == store::Role::kDeltaIn ||
        tensor.role == store::Role::kGateUp) {
      ++parts[{tensor.layer, tensor.role}];
    }
  }
  unsigned long further = 0;
  for (const auto& [matrix, count] : parts) {
    further += count > 1 ? count - 1 + (matrix.second == store::Role::kGateUp ? 1 : 0) : 0;
  }
  return further;
}

TEST_P(FormatsGpuTest, ALayerOfADenseStepIsFewLaunches) {
  const spec::ModelSpec model = store::Checkpoint::open(file()).value().config.model;
  if (!gpu_is_emulated() || model.experts.count > 0) {
    GTEST_SKIP() << "only the emulated driver counts, and of dense models";
  }
  const FileGolden golden = read_file_golden(file(".json"));
  GeneratingRig rig(file(), spec::DType::kStored, gpu());
  rig.add(1, {golden.ids.begin(), golden.ids.begin() + 12}, {.temperature = 0.0F, .max_tokens = 8});
  ASSERT_TRUE(rig.step({1}, 12));
  const unsigned long before = driver_->calls("kernel");
  ASSERT_TRUE(rig.step({1}, 1));
  const unsigned long further = further_launches(store::plan_image(model, spec::DType::kStored));
  EXPECT_LE(driver_->calls("kernel") - before, launches_of_a_step(model) + further);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         FormatsGpuTest,
                         testing::Values("llama",
                                         "smollm3",
                                         "phi3",
                                         "phi3_long",
                                         "mixtral",
                                         "qwen2moe",
                                         "qwen3moe",
                                         "gemma2",
                                         "granite",
                                         "olmo2",
                                         "gpt_oss",
                                         "qwen35"),
                         [](const auto& info) { return std::string(info.param); });

class ExpertsGpuTest : public OnGpu, public testing::WithParamInterface<const char*> {};

TEST_P(ExpertsGpuTest, SayNearlyWhatTheySayOnACpu) {
  const std::vector<TokenId> ids = read_golden(GetParam()).input_ids;
  GeneratingRig on_gpu(golden_directory() / GetParam(), spec::DType::kBf16, gpu());
  GeneratingRig on_cpu(
      golden_directory() / GetParam(), spec::DType::kBf16, device::CpuDeviceOptions{});
  for (GeneratingRig* rig : {&on_gpu, &on_cpu}) {
    rig->add(1, {ids.begin(), ids.begin() + std::min<std::ptrdiff_t>(40, std::ssize(ids))}, 6);
    rig->finish({1}, 24);
  }
  // A router's second choice may be nearly as likely as its third, and differ by device.
  const auto& expected = on_cpu.generated[1];
  const auto& got = on_gpu.generated[1];
  std::map<TokenId, double> found;
  for (const auto& each : got.details.front().logprobs) {
    found[each.token] = static_cast<double>(each.logprob);
  }
  std::size_t compared = 0;
  for (const auto& each : expected.details.front().logprobs) {
    if (found.contains(each.token)) {
      EXPECT_NEAR(found[each.token], static_cast<double>(each.logprob), 6e-2);
      ++compared;
    }
  }
  EXPECT_GE(compared, 4U);
}

TEST_P(ExpertsGpuTest, AStepIsReplayedAndALayerOfItIsFewLaunches) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  const std::vector<TokenId> ids = read_golden(GetParam()).input_ids;
  const spec::ModelSpec model =
      store::Checkpoint::open(golden_directory() / GetParam())->config.model;
  GeneratingRig rig(golden_directory() / GetParam(), spec::DType::kBf16, gpu());
  rig.add(1, {ids.begin(), ids.begin() + 16}, {.temperature = 0.0F, .max_tokens = 20});
  ASSERT_TRUE(rig.step({1}, 16));
  const unsigned long before = driver_->calls("kernel");
  ASSERT_TRUE(rig.step({1}, 16));
  EXPECT_LE(driver_->calls("kernel") - before, launches_of_a_step(model));
  rig.finish({1});
  EXPECT_EQ(driver_->calls("cuGraphInstantiateWithFlags"), 1U);
  EXPECT_GT(driver_->calls("cuGraphLaunch"), 15U);
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         ExpertsGpuTest,
                         testing::Values("mixtral-experts",
                                         "qwen2-moe-shared",
                                         "qwen3-moe",
                                         "qwen3-moe-unnormalised",
                                         "gpt-oss",
                                         "gpt-oss-head-dim-32",
                                         "gpt-oss-mxfp4",
                                         "qwen3-next",
                                         "qwen3-5-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle::engine
