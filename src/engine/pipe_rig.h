#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/test_host.h"
#include "spec/operations.h"
#include "store/test_files.h"

/// Models to cut, and engines with stages of them, for tests of pipelines.
namespace heddle::engine {

inline constexpr ModelId kModel{3};
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::int64_t kBatchTokens = 64;

struct Source {
  std::string name{};
  spec::ModelSpec spec{};
  store::TensorSet tensors{};
};

/// Of five layers.
inline std::vector<spec::ModelSpec> deep_models() {
  spec::ModelSpec llama{.architecture = spec::Architecture::kLlama,
                        .hidden = 32,
                        .layers = 5,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = 8,
                        .intermediate = 48,
                        .vocab = 101,
                        .max_position = 160,
                        .rms_eps = 1e-5,
                        .out_bias = true,
                        .mlp_bias = true,
                        .window = {0, 0, 0, 0, 0}};
  spec::ModelSpec mistral = llama;
  mistral.architecture = spec::Architecture::kMistral;
  mistral.out_bias = mistral.mlp_bias = false;
  mistral.window = {24, 24, 24, 24, 24};
  spec::ModelSpec qwen2 = mistral;
  qwen2.architecture = spec::Architecture::kQwen2;
  qwen2.qkv_bias = qwen2.tied_embeddings = true;
  qwen2.window = {0, 16, 0, 16, 16};
  spec::ModelSpec qwen3 = llama;
  qwen3.architecture = spec::Architecture::kQwen3;
  qwen3.out_bias = qwen3.mlp_bias = false;
  qwen3.qk_norm = true;
  return {llama, mistral, qwen2, qwen3};
}

/// Golden models: those some of whose layers keep a state, which are not cut, or the others.
inline std::vector<Source> golden_sources(bool states) {
  std::vector<Source> made;
  for (const std::string& name : golden_cases()) {
    auto checkpoint = store::Checkpoint::open(golden_directory() / name).value();
    if (spec::has_states(checkpoint.config.model) == states) {
      made.push_back({name, checkpoint.config.model, std::move(checkpoint.tensors)});
    }
  }
  return made;
}

inline const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> made = golden_sources(/*states=*/false);
    static store::TempDirectory directory;
    Rng rng(31);
    for (const spec::ModelSpec& spec : deep_models()) {
      const std::string name = "deep" + std::to_string(made.size());
      std::filesystem::create_directory(directory.path() / name);
      store::write_safetensors(directory.path() / name / "model.safetensors",
                               store::plausible_model(spec, rng));
      made.push_back({name, spec, store::TensorSet::open(directory.path() / name).value()});
    }
    return made;
  }();
  return all;
}

/// An engine with a model, or a stage of one.
struct StageEngine {
  StageEngine(const Source& source,
              const spec::ModelSpec& spec,
              spec::DType dtype,
              bool prefix_cache,
              std::size_t gather_bytes = EngineOptions{}.gather_bytes)
      : host(1280, kPageBytes),
        model(host.load(source.tensors, spec, dtype)),
        engine(Engine::create(host.device(),
                              host.pool(),
                              {.max_batch_tokens = kBatchTokens,
                               .prefix_cache = prefix_cache,
                               .prefix_secret = {7, static_cast<std::uint64_t>(spec.stage.index)},
                               .gather_bytes = gather_bytes})
                   .value()) {
    HEDDLE_CHECK(engine->add_model(kModel, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    engine->set_image_ready(kModel, model.layout.bytes);
  }

  TestHost host;
  LoadedModel model;
  std::unique_ptr<Engine> engine;
};

/// Prompt, parameters and salt drawn by chance.
inline SequenceStart draw_start(Rng& rng, const spec::ModelSpec& spec, std::uint64_t id) {
  SequenceStart start{.id = SequenceId{id}, .model = kModel};
  start.prompt_tokens = static_cast<std::int64_t>(1 + rng.below(90));
  while (std::ssize(start.tokens) < start.prompt_tokens) {
    start.tokens.push_back(static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(spec.vocab))));
  }
  start.cache_salt = rng.below(3) == 0 ? "another" : "";
  start.params.max_tokens = static_cast<std::int64_t>(2 + rng.below(40));
  start.params.temperature = rng.below(3) == 0 ? 0.0F : 0.9F;
  start.params.frequency_penalty = rng.below(2) == 0 ? 0.0F : 0.5F;
  start.params.seed = rng.next();
  start.params.logprobs = 2;
  return start;
}

}  // namespace heddle::engine
