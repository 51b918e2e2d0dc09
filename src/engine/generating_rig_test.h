#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "engine/engine.h"
#include "engine/test_host.h"

namespace heddle::engine {

inline constexpr ModelId kRigModel{7};
inline constexpr std::uint64_t kRigPages = 128;
inline constexpr std::size_t kRigPageBytes = std::size_t{64} << 10U;

/// An engine with one model, to generate with.
class GeneratingRig {
 public:
  GeneratingRig(const std::filesystem::path& golden,
                spec::DType dtype,
                const device::DeviceOptions& options,
                bool run_ahead = false,
                spec::KvType kv = spec::KvType::kComputed,
                std::int64_t adapter_rank = 0)
      : host_(kRigPages, kRigPageBytes, options),
        model_(host_.load(golden_directory() / golden, dtype)),
        engine_(Engine::create(
                    host_.device(), host_.pool(), {.prefix_cache = true, .run_ahead = run_ahead})
                    .value()) {
    model_.spec.kv = kv;
    model_.spec.adapter_rank = adapter_rank;
    HEDDLE_CHECK(
        engine_->add_model(kRigModel, model_.spec, model_.layout, model_.window.base(), kKvLease)
            .has_value());
    engine_->set_image_ready(kRigModel, model_.layout.bytes);
  }

  struct Generated {
    std::vector<TokenId> tokens{};
    std::vector<spec::TokenDetails> details{};
  };

  Engine& engine() { return *engine_; }

  void add(std::uint64_t id, std::vector<TokenId> prompt, std::int64_t tokens) {
    add(id, std::move(prompt), {.temperature = 0.0F, .max_tokens = tokens, .logprobs = 5});
  }
  void add(std::uint64_t id,
           std::vector<TokenId> prompt,
           spec::SamplingParams params,
           std::shared_ptr<const store::Adapter> adapter = nullptr) {
    SequenceStart start{.id = SequenceId{id},
                        .model = kRigModel,
                        .prompt_tokens = std::ssize(prompt),
                        .params = std::move(params),
                        .adapter = std::move(adapter)};
    start.tokens = std::move(prompt);
    start.params.ignore_eos = true;
    pending_[id] = std::ssize(start.tokens);
    HEDDLE_CHECK(engine_->add_sequence(std::move(start)).has_value());
  }

  /// How many of a sequence's first tokens are cached and need not be computed.
  std::int64_t take_prefix(std::uint64_t id) {
    const std::int64_t taken = engine_->take_prefix(SequenceId{id});
    pending_.at(id) -= taken;
    return taken;
  }

  /// One step in which each of these computes at most `chunk` tokens.
  Result<void> step(const std::vector<std::uint64_t>& ids, std::int64_t chunk) {
    policy::StepPlan plan{.batches = {{.model = kRigModel}}, .stable_steps = 8};
    for (const std::uint64_t id : ids) {
      if (pending_.at(id) > 0) {
        plan.batches[0].slices.push_back(
            {.sequence = SequenceId{id}, .tokens = std::min(pending_.at(id), chunk)});
      }
    }
    auto outcome = engine_->run(plan);
    if (!outcome) {
      return outcome.error();
    }
    HEDDLE_CHECK(outcome->starved.empty() && outcome->failed.empty());
    for (std::size_t i = 0; i < outcome->results.size(); ++i) {
      SliceResult& result = outcome->results[i];
      std::int64_t& pending = pending_.at(result.sequence.value());
      pending -= plan.batches[0].slices[i].tokens;
      if (result.token) {
        Generated& to = generated[result.sequence.value()];
        to.tokens.push_back(*result.token);
        to.details.push_back(std::move(result.details));
        pending = result.finish == spec::FinishReason::kNone ? 1 : 0;
      }
    }
    return {};
  }

  /// Runs sequences to their ends.
  void finish(const std::vector<std::uint64_t>& ids, std::int64_t chunk = 512) {
    while (std::any_of(ids.begin(), ids.end(), [this](auto id) { return pending_.at(id) > 0; })) {
      HEDDLE_CHECK(step(ids, chunk).has_value());
    }
  }

  std::map<std::uint64_t, Generated> generated{};

 private:
  TestHost host_;
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  std::map<std::uint64_t, std::int64_t> pending_{};
};

/// Tests on a GPU: the emulated driver's, or that of the driver that HEDDLE_CUDA_DRIVER names.
class OnGpu : public testing::Test {
 protected:
  device::DeviceOptions gpu() {
    if (std::getenv("HEDDLE_CUDA_DRIVER") != nullptr) {
      return device::CudaDeviceOptions{.page_bytes = std::size_t{2} << 20U,
                                       .bytes = kRigPages << 21U};
    }
    driver_.emplace("memory=256MiB,granularity=65536");
    return device::CudaDeviceOptions{.page_bytes = kRigPageBytes,
                                     .bytes = kRigPages * kRigPageBytes,
                                     .driver = emulator::EmulatedDriver::open().value()};
  }

  static bool gpu_is_emulated() { return std::getenv("HEDDLE_CUDA_DRIVER") == nullptr; }

  std::optional<emulator::EmulatedDriver> driver_{};
};

}  // namespace heddle::engine
