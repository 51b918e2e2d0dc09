// The engine on a GPU: the emulated driver's, or that of the driver that HEDDLE_CUDA_DRIVER names.

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/generating_rig_test.h"
#include "engine/launches_test.h"
#include "engine/test_host.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

using Bench = GeneratingRig;

class GpuTest : public OnGpu, public testing::WithParamInterface<std::string> {};

std::vector<TokenId> prompt_of(const std::string& golden, std::ptrdiff_t tokens) {
  const std::vector<TokenId> ids = read_golden(golden).input_ids;
  return {ids.begin(), ids.begin() + std::min(tokens, std::ssize(ids))};
}

TEST_P(GpuTest, GreedyTextInFloat32IsThatOfTransformers) {
  const Golden golden = read_golden(GetParam());
  Bench bench(GetParam(), spec::DType::kF32, gpu());
  bench.add(1, prompt_of(GetParam(), 16), std::ssize(golden.greedy));
  bench.finish({1});
  EXPECT_EQ(bench.generated[1].tokens, golden.greedy);
}

/// The model's thoughts on both devices, of which a GPU's are a little different in bfloat16.
TEST_P(GpuTest, LogProbabilitiesAreThoseOfTheCpu) {
  // Linear attention normalises what each head gives, and so makes rounding count for more.
  const bool hybrid =
      spec::has_states(store::Checkpoint::open(golden_directory() / GetParam())->config.model);
  const double of_logits = hybrid ? 2e-2 : 8e-3;
  for (const auto& [dtype, bound] : {std::pair(spec::DType::kF32, 1e-4),
                                     std::pair(spec::DType::kBf16, 6e-2),
                                     std::pair(spec::DType::kI8, 6e-2)}) {
    SCOPED_TRACE(spec::dtype_name(dtype));
    Bench gpu_bench(GetParam(), dtype, gpu());
    Bench cpu_bench(GetParam(), dtype, device::CpuDeviceOptions{});
    for (Bench* bench : {&gpu_bench, &cpu_bench}) {
      bench->add(1, prompt_of(GetParam(), 40), 6);
      bench->finish({1}, 24);
    }
    const auto& gpu_side = gpu_bench.generated[1];
    const auto& cpu_side = cpu_bench.generated[1];
    for (std::size_t i = 0; i < cpu_side.tokens.size(); ++i) {
      ASSERT_EQ(gpu_side.details[i].logprobs.size(), cpu_side.details[i].logprobs.size());
      // By token, as two that are nearly as likely may change places.
      for (const auto& expected : cpu_side.details[i].logprobs) {
        for (const auto& got : gpu_side.details[i].logprobs) {
          if (got.token == expected.token) {
            // Of an unlikely token more, as it is the difference of larger logits: as much as the
            // contract allows of them (docs/contracts/engine.md, Numbers).
            const double far = of_logits * std::abs(static_cast<double>(expected.logprob));
            EXPECT_NEAR(got.logprob, expected.logprob, std::max(bound, far)) << "token " << i;
          }
        }
      }
      if (gpu_side.tokens[i] != cpu_side.tokens[i]) {
        const auto& best = cpu_side.details[i].logprobs;
        ASSERT_NE(dtype, spec::DType::kF32);
        EXPECT_NEAR(best[1].logprob, best[2].logprob, 2 * bound) << "a tie, and nothing less";
        break;  // Another text from here on.
      }
    }
  }
}

TEST_P(GpuTest, ManyAtOnceInChunksGenerateWhatEachDoesAlone) {
  Bench alone(GetParam(), spec::DType::kF32, gpu());
  const std::vector<std::uint64_t> ids{1, 2, 3};
  const auto prompt = [&](std::uint64_t id) {
    std::vector<TokenId> tokens = prompt_of(GetParam(), 20 + static_cast<std::ptrdiff_t>(id));
    std::rotate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(id), tokens.end());
    return tokens;
  };
  for (const std::uint64_t id : ids) {
    alone.add(id, prompt(id), 5);
    alone.finish({id});
  }
  const auto expected = alone.generated;
  for (const std::uint64_t id : ids) {
    alone.engine().remove_sequence(SequenceId{id});
    alone.add(id + 10, prompt(id), 5);
  }
  alone.finish({11, 12, 13}, 7);
  for (const std::uint64_t id : ids) {
    EXPECT_EQ(alone.generated[id + 10].tokens, expected.at(id).tokens) << id;
  }
}

/// Without those of which GPUs lack operations so far.
std::vector<std::string> gpu_cases() {
  std::vector<std::string> cases = golden_cases();
  std::erase_if(cases, [](const std::string& name) {
    return !spec::cpu_only(store::Checkpoint::open(golden_directory() / name)->config.model,
                           spec::DType::kF32)
                .empty();
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Golden, GpuTest, testing::ValuesIn(gpu_cases()), [](const auto& name) {
  std::string text = name.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

using OneGpuTest = OnGpu;

constexpr const char* kPlainCase = "llama-bias-eps";

TEST_F(OneGpuTest, AModelWithExpertsInFloat32IsRefused) {
  TestHost host(kRigPages, kRigPageBytes, gpu());
  const LoadedModel model = host.load(golden_directory() / "qwen3-moe", spec::DType::kF32);
  const auto engine = Engine::create(host.device(), host.pool()).value();
  const Result<void> added =
      engine->add_model(ModelId{1}, model.spec, model.layout, model.window.base(), kKvLease);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("experts"), std::string::npos) << added.error().message;
}

TEST_F(OneGpuTest, DecodeStepsAreReplayedAndGiveTheSameText) {
  const std::string golden = kPlainCase;
  Bench bench(golden, spec::DType::kBf16, gpu());
  bench.add(1, prompt_of(golden, 16), 20);
  bench.finish({1});
  if (driver_) {
    EXPECT_GT(driver_->calls("cuGraphLaunch"), 10U);
  }
  // In company, and so padded; the cache has its prompt.
  for (const std::uint64_t id : {2U, 3U, 4U}) {
    bench.add(id, prompt_of(golden, 16), 20);
  }
  bench.finish({2, 3, 4});
  for (const std::uint64_t id : {2U, 3U, 4U}) {
    EXPECT_EQ(bench.generated[id].tokens, bench.generated[1].tokens) << id;
  }
}

/// What a client may ask of sampling, each with its name.
std::vector<std::pair<std::string, spec::SamplingParams>> kinds_of_sampling() {
  return {{"greedy", {.temperature = 0.0F}},
          {"repetition penalty", {.temperature = 0.7F, .repetition_penalty = 1.05F}},
          {"presence penalty", {.presence_penalty = 0.5F}},
          {"frequency penalty", {.temperature = 0.0F, .frequency_penalty = 0.3F}},
          {"cuts", {.temperature = 0.8F, .top_p = 0.9F, .top_k = 40, .min_p = 0.01F}},
          {"bias", {.logit_bias = {{5, -1.0F}, {9, 2.0F}}}},
          {"log probabilities", {.temperature = 0.5F, .logprobs = 3}}};
}

TEST_F(OneGpuTest, AsManyCudaGraphsAreMadeAsThereAreBatchSizes) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  constexpr std::int64_t kTokens = 100;  // Twice; the model takes few positions.
  const std::string golden = kPlainCase;
  for (const bool run_ahead : {false, true}) {
    for (auto [name, params] : kinds_of_sampling()) {
      SCOPED_TRACE(name + (run_ahead ? ", ahead" : ""));
      if (run_ahead && name != "greedy") {
        continue;  // What needs to know the last token does not run ahead.
      }
      params.max_tokens = kTokens;
      Bench bench(golden, spec::DType::kF32, gpu(), run_ahead);
      const auto graphs = [&] { return driver_->calls("cuGraphInstantiateWithFlags"); };
      for (const std::uint64_t id : {1U, 5U}) {
        bench.add(id, prompt_of(golden, 16), params);
        bench.finish({id});
      }
      EXPECT_EQ(graphs(), 1U);
      EXPECT_GE(driver_->calls("cuGraphLaunch"), static_cast<unsigned long>(2 * kTokens - 5));
      params.max_tokens = 20;
      for (const std::uint64_t id : {2U, 3U, 4U}) {
        bench.add(id, prompt_of(golden, 16), params);
      }
      bench.finish({2, 3, 4});
      EXPECT_EQ(graphs(), 2U);
    }
  }
}

TEST_F(OneGpuTest, InputsOfADecodeStepDoNotQueueAtACopyEngine) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  for (const bool run_ahead : {false, true}) {
    const std::string golden = kPlainCase;
    Bench bench(golden, spec::DType::kBf16, gpu(), run_ahead);
    bench.add(1, prompt_of(golden, 16), {.temperature = 0.0F, .max_tokens = 30});
    ASSERT_TRUE(bench.step({1}, 16));
    const unsigned long before = driver_->calls("copy in");
    bench.finish({1});
    EXPECT_EQ(bench.generated[1].tokens.size(), 30U);
    EXPECT_EQ(driver_->calls("copy in"), before);
  }
}

TEST_F(OneGpuTest, ALayerOfAStepOfOneSequenceIsFewLaunches) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  for (const std::string& golden : gpu_cases()) {
    const spec::ModelSpec model =
        store::Checkpoint::open(golden_directory() / golden)->config.model;
    Bench bench(golden, spec::DType::kBf16, gpu());
    bench.add(1, prompt_of(golden, 16), {.temperature = 0.0F, .max_tokens = 8});
    ASSERT_TRUE(bench.step({1}, 16));
    const unsigned long before = driver_->calls("kernel");
    ASSERT_TRUE(bench.step({1}, 16));
    const unsigned long launches = driver_->calls("kernel") - before;
    EXPECT_LE(launches, launches_of_a_step(model)) << golden << ", " << model.layers << " layers";
  }
}

/// Heads that tensor cores take and others, windows, soft caps, sinks, normalised heads, states.
constexpr std::array kKvCases{
    "llama-head-dim-64", "gemma2", "gpt-oss", "qwen3-window", "olmo2-gqa-f32", "qwen3-5"};
constexpr std::array kKvCodes{spec::KvType::kI8, spec::KvType::kF8};

/// Of a model over KV in codes: what it says on a GPU, and on a CPU over the same type.
TEST_F(OneGpuTest, OverKvInCodesLogProbabilitiesAreThoseOfTheCpu) {
  for (const char* const golden : kKvCases) {
    for (const spec::KvType kv : kKvCodes) {
      const spec::DType dtype =
          std::string_view(golden).ends_with("f32") ? spec::DType::kF32 : spec::DType::kBf16;
      SCOPED_TRACE(std::string(golden) + " " +
                   std::string(spec::dtype_name(spec::kv_dtype(kv, dtype))));
      Bench gpu_bench(golden, dtype, gpu(), false, kv);
      Bench cpu_bench(golden, dtype, device::CpuDeviceOptions{}, false, kv);
      for (Bench* bench : {&gpu_bench, &cpu_bench}) {
        bench->add(1, prompt_of(golden, 40), 4);
        bench->finish({1}, 24);
      }
      // The first token, which both say of the same text.
      std::map<TokenId, float> found;
      for (const auto& each : gpu_bench.generated[1].details.front().logprobs) {
        found[each.token] = each.logprob;
      }
      std::size_t compared = 0;
      for (const auto& each : cpu_bench.generated[1].details.front().logprobs) {
        if (found.contains(each.token)) {
          EXPECT_NEAR(found[each.token], each.logprob, 0.1);
          ++compared;
        }
      }
      EXPECT_GE(compared, 3U);
    }
  }
}

// As many launches as over KV in bfloat16, recorded and replayed likewise.
TEST_F(OneGpuTest, OverKvInCodesStepsAreReplayedAndAreAsManyLaunches) {
  if (!gpu_is_emulated()) {
    GTEST_SKIP() << "only the emulated driver counts";
  }
  for (const char* const golden : {"llama-head-dim-64", "qwen3-window"}) {
    std::vector<unsigned long> launches;
    for (const spec::KvType kv : {spec::KvType::kComputed, spec::KvType::kI8, spec::KvType::kF8}) {
      Bench bench(golden, spec::DType::kBf16, gpu(), false, kv);
      bench.add(1, prompt_of(golden, 16), {.temperature = 0.0F, .max_tokens = 16});
      ASSERT_TRUE(bench.step({1}, 16));
      const unsigned long before = driver_->calls("kernel");
      ASSERT_TRUE(bench.step({1}, 1));
      launches.push_back(driver_->calls("kernel") - before);
      bench.finish({1});
      EXPECT_EQ(driver_->calls("cuGraphInstantiateWithFlags"), 1U);
      EXPECT_GT(driver_->calls("cuGraphLaunch"), 8U);
    }
    EXPECT_EQ(launches[1], launches[0]) << golden;
    EXPECT_EQ(launches[2], launches[0]) << golden;
  }
}

/// More sequences than a power of two, whose recorded steps repeat the first.
TEST_F(OneGpuTest, StatesOfSequencesStayTheirOwnInStepsThatAreFilledUp) {
  const std::string golden = "qwen3-5-f32";
  constexpr std::int64_t kAnswer = 12;
  std::vector<std::uint64_t> ids;
  Bench alone(golden, spec::DType::kF32, device::CpuDeviceOptions{});
  Bench together(golden, spec::DType::kF32, gpu());
  for (std::uint64_t id = 1; id <= 9; ++id) {
    ids.push_back(id);
    std::vector<TokenId> prompt = prompt_of(golden, 8 + static_cast<std::ptrdiff_t>(id % 3));
    std::ranges::rotate(prompt, prompt.begin() + static_cast<std::ptrdiff_t>(id % 8));
    alone.add(id, prompt, {.temperature = 0.0F, .max_tokens = kAnswer});
    alone.finish({id});
    together.add(id, prompt, {.temperature = 0.0F, .max_tokens = kAnswer});
  }
  together.finish(ids);
  for (const std::uint64_t id : ids) {
    EXPECT_EQ(together.generated[id].tokens, alone.generated[id].tokens) << id;
  }
  if (driver_) {
    EXPECT_GT(driver_->calls("cuGraphLaunch"), 5U);
  }
}

/// The second conversation begins with the first one and its answer.
TEST_F(OneGpuTest, ASequenceGoesOnFromACopyOfAState) {
  const std::string golden = "qwen3-5-f32";
  const std::vector<TokenId> prompt = prompt_of(golden, 40);
  std::vector<TokenId> answers[2];
  for (const bool on_gpu : {false, true}) {
    Bench bench(golden,
                spec::DType::kF32,
                on_gpu ? gpu() : device::DeviceOptions(device::CpuDeviceOptions{}));
    bench.add(1, prompt, {.temperature = 0.0F, .max_tokens = 10});
    bench.finish({1});
    bench.engine().remove_sequence(SequenceId{1});
    std::vector<TokenId> longer = prompt;
    std::ranges::copy(bench.generated[1].tokens, std::back_inserter(longer));
    longer.push_back(TokenId{3});
    bench.add(2, longer, {.temperature = 0.0F, .max_tokens = 10});
    EXPECT_GT(bench.take_prefix(2), 0);
    bench.finish({2});
    answers[on_gpu ? 1 : 0] = bench.generated[2].tokens;
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_F(OneGpuTest, ALostDeviceIsSaidToBeUnavailableEverAfter) {
  const std::string golden = kPlainCase;
  Bench bench(golden, spec::DType::kBf16, gpu());
  if (!driver_) {
    GTEST_SKIP() << "the machine's own GPU is not broken on purpose";
  }
  bench.add(1, prompt_of(golden, 16), 4);
  driver_->fail("kernel", 5, device::kCudaIllegalAddress);
  const Result<void> first = bench.step({1}, 16);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, Code::kUnavailable) << first.error().message;
  EXPECT_FALSE(bench.step({1}, 16));
}

}  // namespace
}  // namespace heddle::engine
