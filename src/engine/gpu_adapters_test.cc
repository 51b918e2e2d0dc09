// LoRA adapters on a GPU: the emulated driver's, or that of the driver that HEDDLE_CUDA_DRIVER
// names.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapted_model_test.h"
#include "engine/adapters.h"
#include "engine/generating_rig_test.h"
#include "engine/launches_test.h"

namespace heddle::engine {
namespace {

constexpr std::uint64_t kAdaptedPages = 256;

class GpuAdaptersTest : public OnGpu {
 protected:
  std::unique_ptr<AdaptedModel> model_of(const std::string& golden, int adapters) {
    const auto options = std::get<device::CudaDeviceOptions>(gpu());
    const std::size_t page_bytes = options.page_bytes;
    device::CudaDeviceOptions larger = options;
    larger.bytes = kAdaptedPages * page_bytes;
    return std::make_unique<AdaptedModel>(golden, adapters, kAdaptedPages, page_bytes, larger);
  }
};

class GpuAdapterGoldenTest : public GpuAdaptersTest,
                             public testing::WithParamInterface<std::string> {};

TEST_P(GpuAdapterGoldenTest, AnswersAreTheMergedModels) {
  const auto model = model_of(GetParam(), 2);
  model->open(spec::DType::kF32);
  expect_merged_answers(*model, 10, 0.0F);
}

// In bfloat16 the merged weights are rounded once, in int8 the base alone is rounded.
TEST_P(GpuAdapterGoldenTest, LogProbabilitiesOverRoundedBasesAreNearTheMergedModels) {
  const auto model = model_of(GetParam(), 1);
  for (const auto& [dtype, bound] :
       {std::pair(spec::DType::kBf16, 0.15), std::pair(spec::DType::kI8, 0.3)}) {
    SCOPED_TRACE(spec::dtype_name(dtype));
    model->open(dtype);
    const auto said = model->answers({{kBaseModel, 0}, {kMergedModel, -1}, {kBaseModel, -1}}, 1);
    EXPECT_LT(first_difference(said[0], said[1]), bound);
    EXPECT_GT(by_place(said[0], said[2]), 0.0);
  }
}

// Parts of matrices and whole ones, biases, gates of GELU, norms behind products.
INSTANTIATE_TEST_SUITE_P(
    Families,
    GpuAdapterGoldenTest,
    testing::Values("llama-gqa-sharded", "qwen2-tied", "phi3", "gemma2-f32", "olmo2-gqa-f32"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_F(GpuAdaptersTest, ACudaGraphServesTheAdaptersThatThereAre) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  const auto model = model_of("llama-gqa-sharded", 2);
  model->open(spec::DType::kF32);
  const auto first = model->answers({{kBaseModel, 0}}, 12);
  const unsigned long graphs = driver_->calls("cuGraphInstantiateWithFlags");
  EXPECT_EQ(graphs, 1U);
  const auto second = model->answers({{kBaseModel, 1}}, 12);
  EXPECT_EQ(driver_->calls("cuGraphInstantiateWithFlags"), graphs);
  EXPECT_GE(driver_->calls("cuGraphLaunch"), 20U);
  const auto merged = model->answers({{kMergedModel, -1}}, 12);
  const auto other = model->answers({{ModelId(kMergedModel.value() + 1), -1}}, 12);
  EXPECT_EQ(tokens_of(first[0]), tokens_of(merged[0]));
  EXPECT_EQ(tokens_of(second[0]), tokens_of(other[0]));
}

TEST_F(GpuAdaptersTest, ManyInOneStepSayWhatEachSaysAlone) {
  const auto model = model_of("qwen3-tied", 2);
  for (const bool run_ahead : {false, true}) {
    model->open(spec::DType::kF32, {.run_ahead = run_ahead});
    std::map<int, std::vector<TokenId>> alone;
    for (const int adapter : {-1, 0, 1}) {
      alone[adapter] = tokens_of(model->answers({{kBaseModel, adapter}}, 12)[0]);
    }
    std::vector<std::pair<ModelId, int>> asked;
    for (const int adapter : {0, -1, 1, 0, 1, -1, 0}) {
      asked.emplace_back(kBaseModel, adapter);
    }
    const auto said = model->answers(asked, 12);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(tokens_of(said[i]), alone[asked[i].second]) << i;
    }
  }
}

/// Launches of a decode step that is not replayed, with this adapter.
unsigned long launches(AdaptedModel& model, emulator::EmulatedDriver& driver, int adapter) {
  model.open(spec::DType::kBf16);
  Engine& engine = model.engine();
  SequenceStart start = model.start(1, kBaseModel, adapter, 8);
  start.params.logprobs = spec::SamplingParams{}.logprobs;  // None, as that is a launch.
  HEDDLE_CHECK(engine.add_sequence(std::move(start)).has_value());
  policy::StepPlan plan{
      .batches = {{.model = kBaseModel,
                   .slices = {{.sequence = SequenceId{1}, .tokens = AdaptedModel::kPrompt}}}}};
  HEDDLE_CHECK(engine.run(plan).has_value());
  plan.batches[0].slices[0].tokens = 1;
  const unsigned long before = driver.calls("kernel");
  HEDDLE_CHECK(engine.run(plan).has_value());
  const unsigned long launched = driver.calls("kernel") - before;
  engine.remove_sequence(SequenceId{1});
  return launched;
}

TEST_F(GpuAdaptersTest, AStepWithAdaptersIsTwoLaunchesMoreAProduct) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  for (const char* const golden : {"llama-gqa-sharded", "gemma2-f32"}) {
    const spec::ModelSpec spec = store::Checkpoint::open(golden_directory() / golden)->config.model;
    const auto model = model_of(golden, 1);
    const unsigned long without = launches(*model, *driver_, -1);
    EXPECT_LE(without, launches_of_a_step(spec)) << golden;
    EXPECT_EQ(launches(*model, *driver_, 0),
              without + static_cast<unsigned long>(spec.layers) * launches_of_adapters(spec))
        << golden;
  }
}

// A step ahead still reads the weights of a sequence that has gone: it is over before their pages
// are another's. The emulated driver runs it as late as it may, and knows what is not mapped.
TEST_F(GpuAdaptersTest, WeightsGoWhenNoStepReadsThemAnyMore) {
  for (const bool cache : {true, false}) {
    const auto model = model_of("llama-gqa-sharded", 2);
    model->open(spec::DType::kF32,
                {.prefix_cache = cache, .prefix_secret = {1, 2}, .run_ahead = true});
    Engine& engine = model->engine();
    const std::int64_t free = model->host().pool().free_count() + engine.cached_pages();
    HEDDLE_CHECK(engine.add_sequence(model->start(1, kBaseModel, 0, 20)).has_value());
    policy::StepPlan plan{
        .batches = {{.model = kBaseModel,
                     .slices = {{.sequence = SequenceId{1}, .tokens = AdaptedModel::kPrompt}}}},
        .stable_steps = 8};
    ASSERT_TRUE(engine.run(plan));
    plan.batches[0].slices[0].tokens = 1;
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(engine.run(plan));
    }
    EXPECT_GT(adapters_of(engine, kBaseModel)[0].pages, 0);
    engine.remove_sequence(SequenceId{1});
    engine.trim_cached(0, ledger::DropReason::kLoad);
    EXPECT_EQ(adapters_of(engine, kBaseModel)[0].pages, 0);
    EXPECT_EQ(model->host().pool().free_count(), free);
    const auto again = model->answers({{kBaseModel, 0}, {kBaseModel, 1}}, 4);
    EXPECT_EQ(again[0].size(), 4U);
    EXPECT_EQ(adapters_of(engine, kBaseModel)[0].loads + adapters_of(engine, kBaseModel)[1].loads,
              3U);
  }
}

/// An adapter of a model whose matrices stay blocks, made from its shapes.
store::TestAdapter adapter_of_shapes(const spec::ModelSpec& model) {
  store::TestTensors shapes;
  const auto add =
      [&](std::int64_t layer, const char* name, std::int64_t rows, std::int64_t columns) {
        shapes["model.layers." + std::to_string(layer) + "." + name + ".weight"] = {
            .type = store::StoredType::kF32, .shape = {rows, columns}};
      };
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    add(layer, "self_attn.q_proj", model.heads * model.head_dim, model.hidden);
    add(layer, "self_attn.v_proj", model.kv_heads * model.head_dim, model.hidden);
    add(layer, "self_attn.o_proj", model.hidden, model.heads * model.head_dim);
    add(layer, "mlp.up_proj", model.intermediate, model.hidden);
    add(layer, "mlp.down_proj", model.hidden, model.intermediate);
  }
  Rng rng(5);
  return store::random_adapter(shapes, rng, 8);
}

TEST_F(GpuAdaptersTest, OverBlocksTheySayNearlyWhatTheySayOnACpu) {
  const std::filesystem::path file = golden_directory() / "gguf" / "llama.gguf";
  const store::TempDirectory directory;
  const spec::ModelSpec spec = store::Checkpoint::open(file)->config.model;
  adapter_of_shapes(spec).write(directory.path());
  const auto adapter = std::make_shared<const store::Adapter>(
      store::Adapter::open(directory.path(), spec, spec::DType::kStored).value());
  std::map<bool, std::map<bool, std::map<TokenId, float>>> said;  // By device and adapter.
  for (const bool on_gpu : {false, true}) {
    GeneratingRig rig(file,
                      spec::DType::kStored,
                      on_gpu ? gpu() : device::DeviceOptions(device::CpuDeviceOptions{}),
                      false,
                      spec::KvType::kComputed,
                      8);
    for (const bool adapted : {false, true}) {
      const std::uint64_t id = adapted ? 2 : 1;
      rig.add(id,
              {3, 14, 15, 9, 26, 5},
              {.temperature = 0.0F, .max_tokens = 1, .logprobs = 5},
              adapted ? adapter : nullptr);
      rig.finish({id});
      for (const auto& each : rig.generated[id].details.front().logprobs) {
        said[on_gpu][adapted][each.token] = each.logprob;
      }
    }
  }
  for (const bool adapted : {false, true}) {
    std::size_t compared = 0;
    for (const auto& [token, logprob] : said[false][adapted]) {
      if (said[true][adapted].contains(token)) {
        EXPECT_NEAR(said[true][adapted][token], logprob, 0.1) << token;
        ++compared;
      }
    }
    EXPECT_GE(compared, 3U);
  }
  EXPECT_NE(said[true][true], said[true][false]);
}

}  // namespace
}  // namespace heddle::engine
