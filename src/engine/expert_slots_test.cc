#include "engine/expert_slots.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_experts.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kMixture{5};

/// What an engine generates greedily after two prompts in one batch, and how likely it found it.
struct Said {
  std::vector<TokenId> tokens{};
  std::vector<spec::TokenDetails> details{};
  friend bool operator==(const Said&, const Said&) = default;
};

Said generate(TestHost& host,
              const spec::ModelSpec& spec,
              const store::ImageLayout& layout,
              const std::byte* window,
              ops::ExpertSource* experts) {
  const auto engine = Engine::create(host.device(), host.pool()).value();
  HEDDLE_CHECK(engine->add_model(kMixture, spec, layout, window, kKvLease, experts).has_value());
  engine->set_image_ready(kMixture, layout.bytes);
  Said said;
  std::vector<std::int64_t> pending;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    SequenceStart start{
        .id = SequenceId{id},
        .model = kMixture,
        .prompt_tokens = 20,
        .params = {.temperature = 0.0F, .max_tokens = 12, .ignore_eos = true, .logprobs = 3}};
    for (std::int64_t i = 0; i < start.prompt_tokens; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>((i * 7 + static_cast<std::int64_t>(id)) % spec.vocab));
    }
    HEDDLE_CHECK(engine->add_sequence(std::move(start)).has_value());
    pending.push_back(20);
  }
  for (int step = 0; step < 12; ++step) {
    policy::StepPlan plan{.batches = {{.model = kMixture}}};
    for (std::size_t i = 0; i < pending.size(); ++i) {
      plan.batches[0].slices.push_back({.sequence = SequenceId{i + 1}, .tokens = pending[i]});
    }
    const StepOutcome outcome = engine->run(plan).value();
    for (const SliceResult& result : outcome.results) {
      said.tokens.push_back(result.token.value());
      said.details.push_back(result.details);
    }
    pending.assign(2, 1);
  }
  engine->remove_sequence(SequenceId{1});
  engine->remove_sequence(SequenceId{2});
  engine->remove_model(kMixture);
  return said;
}

class ExpertSlotsTest : public testing::TestWithParam<std::pair<std::string, spec::DType>> {};

TEST_P(ExpertSlotsTest, ChangeNoBitOfWhatTheModelSays) {
  const auto& [name, dtype] = GetParam();
  const auto checkpoint = store::Checkpoint::open(golden_directory() / name).value();
  Said expected;
  {
    TestHost host(128, std::size_t{16} << 10U);
    const LoadedModel whole = host.load(checkpoint.tensors, checkpoint.config.model, dtype);
    expected = generate(host, whole.spec, whole.layout, whole.window.base(), nullptr);
  }
  ASSERT_EQ(expected.tokens.size(), 24U);
  const spec::ModelSpec& spec = checkpoint.config.model;
  const std::int64_t all = spec.experts.count * spec.layers;
  std::uint64_t misses = UINT64_MAX;
  for (const std::int64_t slots : {std::int64_t{1}, all / 2, all}) {
    SCOPED_TRACE(slots);
    TestHost host(128, std::size_t{16} << 10U);
    const LoadedInPart part = load_in_part(host, checkpoint.tensors, spec, dtype, slots);
    const std::unique_ptr<ExpertSlots> experts = empty_slots(host, part);
    const LoadedModel& model = part.model;
    EXPECT_EQ(generate(host, model.spec, model.layout, model.window.base(), experts.get()),
              expected);
    const ExpertSlots::Counts& counts = experts->counts();
    EXPECT_LE(experts->resident(), slots);
    EXPECT_LE(counts.misses, misses) << "with more slots";
    misses = counts.misses;
    EXPECT_GT(counts.fetched_bytes, 0U);
    if (slots == all) {
      EXPECT_EQ(static_cast<std::int64_t>(counts.misses), experts->resident());
      EXPECT_GT(counts.hits, counts.misses);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mixtures,
                         ExpertSlotsTest,
                         testing::Values(std::pair("qwen3-moe", spec::DType::kBf16),
                                         std::pair("qwen3-moe", spec::DType::kI8),
                                         std::pair("mixtral-experts", spec::DType::kF32),
                                         std::pair("qwen2-moe-shared", spec::DType::kBf16),
                                         std::pair("gpt-oss-mxfp4", spec::DType::kStored)));

}  // namespace
}  // namespace heddle::engine
