#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_host.h"
#include "store/test_adapter.h"

namespace heddle::engine {

inline constexpr ModelId kBaseModel{1};
inline constexpr ModelId kMergedModel{2};

/// A golden model, adapters of it, and for each a model with the adapter in its weights.
class AdaptedModel {
 public:
  AdaptedModel(const std::string& name,
               int adapters,
               std::uint64_t pages = 4096,
               std::size_t page_bytes = std::size_t{4} << 10U,
               device::DeviceOptions device = device::CpuDeviceOptions{})
      : host_(pages, page_bytes, std::move(device)) {
    const std::filesystem::path source = golden_directory() / name;
    store::Checkpoint checkpoint = store::Checkpoint::open(source).value();
    spec_ = checkpoint.config.model;
    spec_.adapter_rank = 8;
    base_ = store::all_tensors(checkpoint.tensors);
    for (int i = 0; i < adapters; ++i) {
      const store::TestAdapter made = store::random_adapter(base_, rng_, i == 0 ? 4 : 7);
      const std::filesystem::path directory = directory_.path() / std::to_string(i);
      made.write(directory / "adapter");
      made_.push_back(made);
    }
  }

  void open(spec::DType dtype, const EngineOptions& options = {}) {
    engine_.reset();
    engine_ = Engine::create(host_.device(), host_.pool(), options).value();
    models_.clear();
    add(kBaseModel, base_, dtype);
    adapters_.clear();
    for (std::size_t i = 0; i < made_.size(); ++i) {
      auto opened =
          store::Adapter::open(directory_.path() / std::to_string(i) / "adapter", spec_, dtype);
      HEDDLE_CHECK(opened.has_value());
      adapters_.push_back(std::make_shared<const store::Adapter>(std::move(*opened)));
      add(ModelId(kMergedModel.value() + i), store::merged(base_, made_[i]), dtype);
    }
  }

  /// Answers of `tokens` tokens to the same prompt, all in the same steps: what each of these pairs
  /// of a model and an adapter says. -1: none.
  std::vector<std::vector<SliceResult>> answers(const std::vector<std::pair<ModelId, int>>& asked,
                                                std::int64_t tokens,
                                                float temperature = 0.0F) {
    std::vector<std::vector<SliceResult>> results(asked.size());
    std::map<ModelId, policy::ModelBatch> batches;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const auto& [model, adapter] = asked[i];
      SequenceStart begun = start(i + 1, model, adapter, tokens);
      begun.params.temperature = temperature;
      HEDDLE_CHECK(engine_->add_sequence(std::move(begun)).has_value());
      batches[model].model = model;
      batches[model].slices.push_back({.sequence = SequenceId{i + 1}, .tokens = kPrompt});
    }
    policy::StepPlan plan{.stable_steps = 8};
    for (const auto& [model, batch] : batches) {
      plan.batches.push_back(batch);
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      auto outcome = engine_->run(plan);
      HEDDLE_CHECK(outcome.has_value() && outcome->starved.empty() && outcome->failed.empty());
      for (SliceResult& result : outcome->results) {
        results[result.sequence.value() - 1].push_back(std::move(result));
      }
      for (policy::ModelBatch& batch : plan.batches) {
        for (policy::StepSlice& slice : batch.slices) {
          slice.tokens = 1;
        }
      }
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      engine_->remove_sequence(SequenceId{i + 1});
    }
    return results;
  }

  SequenceStart start(std::uint64_t id, ModelId model, int adapter, std::int64_t tokens) {
    SequenceStart start{
        .id = SequenceId{id},
        .model = model,
        .prompt_tokens = kPrompt,
        .params = {.temperature = 0.0F, .max_tokens = tokens, .ignore_eos = true, .logprobs = 5}};
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      start.tokens.push_back(static_cast<TokenId>((7 * i + 3) % spec_.vocab));
    }
    start.adapter = adapter < 0 ? nullptr : adapters_.at(static_cast<std::size_t>(adapter));
    return start;
  }

  static constexpr std::int64_t kPrompt = 20;
  TestHost& host() { return host_; }
  Engine& engine() { return *engine_; }

 private:
  void add(ModelId id, const store::TestTensors& tensors, spec::DType dtype) {
    const std::filesystem::path file = directory_.path() / "some.safetensors";
    store::write_safetensors(file, tensors);
    auto set = store::TensorSet::open_file(file).value();
    const auto added = models_.emplace(id, host_.load(set, spec_, dtype)).first;
    const LoadedModel& model = added->second;
    HEDDLE_CHECK(engine_->add_model(id, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    engine_->set_image_ready(id, model.layout.bytes);
  }

  Rng rng_{11};
  store::TempDirectory directory_{};
  TestHost host_;
  spec::ModelSpec spec_{};
  store::TestTensors base_{};
  std::vector<store::TestAdapter> made_{};
  std::map<ModelId, LoadedModel> models_{};
  std::unique_ptr<Engine> engine_{};
  std::vector<std::shared_ptr<const store::Adapter>> adapters_{};
};

inline std::vector<TokenId> tokens_of(const std::vector<SliceResult>& results) {
  std::vector<TokenId> tokens;
  for (const SliceResult& result : results) {
    tokens.push_back(result.token.value());
  }
  return tokens;
}

/// The largest difference of the log probability of a token that both told of first tokens.
inline double first_difference(const std::vector<SliceResult>& one,
                               const std::vector<SliceResult>& other) {
  double most = 0;
  int compared = 0;
  for (const spec::TokenLogprob& mine : one.front().details.logprobs) {
    for (const spec::TokenLogprob& theirs : other.front().details.logprobs) {
      if (mine.token == theirs.token) {
        ++compared;
        most = std::max(most, std::abs(static_cast<double>(mine.logprob - theirs.logprob)));
      }
    }
  }
  EXPECT_GE(compared, 3);
  return most;
}

/// The largest difference of the log probabilities of first tokens by rank, whichever those are:
/// tiny models are so sure of a token that texts alone would not tell adapters apart.
inline double by_place(const std::vector<SliceResult>& one, const std::vector<SliceResult>& other) {
  const auto& mine = one.front().details.logprobs;
  const auto& theirs = other.front().details.logprobs;
  double most = 0;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(mine[i].logprob - theirs[i].logprob)));
  }
  return most;
}

/// Expects of a model that is open in float32 what its two merged models say, with either adapter,
/// and that either changes it.
inline void expect_merged_answers(AdaptedModel& model, std::int64_t tokens, float temperature) {
  const auto said = model.answers({{kBaseModel, 0},
                                   {kMergedModel, -1},
                                   {kBaseModel, -1},
                                   {kBaseModel, 1},
                                   {ModelId(kMergedModel.value() + 1), -1}},
                                  tokens,
                                  temperature);
  EXPECT_EQ(tokens_of(said[0]), tokens_of(said[1]));
  EXPECT_EQ(tokens_of(said[3]), tokens_of(said[4]));
  EXPECT_LT(first_difference(said[0], said[1]), 1e-4);
  EXPECT_LT(first_difference(said[3], said[4]), 1e-4);
  EXPECT_GT(by_place(said[0], said[2]), 1e-2) << "the adapter is seen";
  EXPECT_GT(by_place(said[0], said[3]), 1e-2) << "and the other is another";
}

}  // namespace heddle::engine
