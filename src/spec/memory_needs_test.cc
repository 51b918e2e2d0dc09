#include "spec/memory_needs.h"

#include <gtest/gtest.h>

#include "spec/block_panels.h"
#include "spec/config_json.h"

namespace heddle::spec {
namespace {

/// Llama 3.2 1B as published.
ModelSpec llama_1b() {
  ModelSpec model;
  model.hidden = 2048;
  model.layers = 16;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 64;
  model.intermediate = 8192;
  model.vocab = 128256;
  model.max_position = 131072;
  model.tied_embeddings = true;
  model.window.assign(16, 0);
  return model;
}

TEST(MemoryNeeds, CountsTheParametersOfAPublishedModel) {
  EXPECT_EQ(parameter_count(llama_1b()), 1'235'814'400);  // As its model card says: 1.24 B.
  EXPECT_EQ(active_parameter_count(llama_1b()), 1'235'814'400);
  ModelSpec untied = llama_1b();
  untied.tied_embeddings = false;
  EXPECT_EQ(parameter_count(untied) - parameter_count(llama_1b()), 128256 * 2048);
}

TEST(MemoryNeeds, CountsTheParametersOfAPublishedEncoder) {
  // all-MiniLM-L6-v2, less the 384 * 385 of a pooler that makes no vectors.
  ModelSpec model = parse_model_config(R"({"architectures": ["BertModel"], "model_type": "bert",
      "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
      "intermediate_size": 1536})",
                                       "config.json")
                        .value();
  EXPECT_EQ(parameter_count(model), 22'713'216 - 384 * 385);
  EXPECT_EQ(weight_bytes(model, DType::kF32), 4U * (22'713'216 - 384 * 385));
  EXPECT_EQ(kv_bytes_per_token(model, DType::kF32), 2U * 4U * 384) << "of one layer";
  EXPECT_EQ(kv_bytes(model, DType::kF32, 10), 10U * 2U * 4U * 384);
  model.encoder.scores = true;
  EXPECT_EQ(parameter_count(model), 22'713'216 + 385);
}

TEST(MemoryNeeds, CountsBiasesAndNorms) {
  ModelSpec model = llama_1b();
  const std::int64_t plain = parameter_count(model);
  model.qkv_bias = model.out_bias = model.mlp_bias = model.qk_norm = true;
  EXPECT_EQ(parameter_count(model) - plain, 16 * (3072 + 2048 + 2 * 8192 + 2048 + 2 * 64));
  // All of them are vectors, hence float32.
  EXPECT_EQ(weight_bytes(model, DType::kBf16) - weight_bytes(llama_1b(), DType::kBf16),
            16U * 4U * (3072 + 2048 + 2 * 8192 + 2048 + 2 * 64));
}

TEST(MemoryNeeds, WeightsFollowTheDtypeButForVectors) {
  const ModelSpec model = llama_1b();
  const std::uint64_t vectors = 2048 * (2 * 16 + 1);
  const auto all = static_cast<std::uint64_t>(parameter_count(model));
  EXPECT_EQ(weight_bytes(model, DType::kF32), 4 * all);
  EXPECT_EQ(weight_bytes(model, DType::kBf16), 2 * all + 2 * vectors);
}

TEST(MemoryNeeds, CountsExperts) {
  // Qwen3-30B-A3B as published.
  ModelSpec model;
  model.hidden = 2048;
  model.layers = 48;
  model.heads = 32;
  model.kv_heads = 4;
  model.head_dim = 128;
  model.qk_norm = true;
  model.vocab = 151936;
  model.max_position = 40960;
  model.window.assign(48, 0);
  model.experts = {.count = 128, .active = 8, .intermediate = 768, .normalised = true};
  EXPECT_EQ(parameter_count(model), 30'532'122'624);        // As its model card says: 30.5 B.
  EXPECT_EQ(active_parameter_count(model), 3'353'032'704);  // And 3.3 B activated.
  // Its routers are never rounded to int8.
  const std::uint64_t routers = 48U * 128U * 2048U;
  const std::uint64_t embedding = 151936U * 2048U;
  const std::uint64_t vectors = 48U * (2 * 2048 + 2 * 128) + 2048;
  const auto all = static_cast<std::uint64_t>(parameter_count(model));
  const std::uint64_t rows = 151936U + 48U * (5120U + 2048U + 128U * (2048U + 2U * 768U));
  EXPECT_EQ(weight_bytes(model, DType::kI8),
            all - vectors + embedding + routers + 4U * (vectors + rows));

  ModelSpec shared = model;
  shared.intermediate = 5632;
  EXPECT_EQ(parameter_count(shared) - parameter_count(model), 48 * (3 * 5632 * 2048 + 2048));
}

TEST(MemoryNeeds, CountsSinksAndBiasesOfExperts) {
  ModelSpec model{.hidden = 2880,
                  .layers = 24,
                  .heads = 64,
                  .kv_heads = 8,
                  .head_dim = 64,
                  .vocab = 201088,
                  .max_position = 131072,
                  .qkv_bias = true,
                  .out_bias = true,
                  .experts = {.count = 32, .active = 4, .intermediate = 2880, .biased = true},
                  .sinks = true};
  model.window.assign(24, 0);
  EXPECT_EQ(parameter_count(model), 20'914'757'184);  // As its model card says: 20.9 B.
  // And 3.61 B active, without the embedding.
  EXPECT_NEAR(static_cast<double>(active_parameter_count(model) - 201088 * 2880), 3.61e9, 0.005e9);
  // Of experts in MXFP4 32 numbers take 17 bytes.
  model.formats.assign(format_count(model.layers), DType::kBf16);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    for (const Matrix matrix : {Matrix::kExpertsGate, Matrix::kExpertsUp, Matrix::kExpertsDown}) {
      model.formats[format_index(matrix, layer)] = DType::kMxfp4;
    }
  }
  const std::uint64_t experts = 24ULL * 32 * 3 * 2880 * 2880;
  EXPECT_EQ(weight_bytes(model, DType::kBf16) - weight_bytes(model, DType::kStored),
            experts * 2 - experts / 32 * 17);
}

TEST(MemoryNeeds, WindowsBoundTheKv) {
  ModelSpec model = llama_1b();
  const std::uint64_t per_layer = 2 * 8 * 64 * 2;
  EXPECT_EQ(kv_bytes_per_token(model, DType::kBf16), 16 * per_layer);
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 1000), 16 * per_layer * 1000);
  for (std::size_t layer = 0; layer < 4; ++layer) {
    model.window[layer] = 100;
  }
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 1000), per_layer * (12 * 1000 + 4 * 100));
  EXPECT_EQ(kv_bytes(model, DType::kBf16, 50), 16 * per_layer * 50);
}

TEST(MemoryNeeds, KvInInt8HasAScaleForEachHead) {
  ModelSpec model = llama_1b();
  model.kv = KvType::kI8;
  for (const DType weights : {DType::kBf16, DType::kF32, DType::kStored}) {
    EXPECT_EQ(kv_bytes_per_token(model, weights), 16U * 2 * 8 * (64 + 2));
  }
  EXPECT_EQ(weight_bytes(model, DType::kBf16), weight_bytes(llama_1b(), DType::kBf16));
}

TEST(MemoryNeeds, SmallestIsBoundedByTheContext) {
  ModelSpec model = llama_1b();
  const MemoryNeeds needs = memory_needs(model, DType::kBf16);
  EXPECT_EQ(needs.smallest, needs.weights + 512 * needs.kv_per_token);
  EXPECT_EQ(needs.one_context, needs.weights + 131072 * needs.kv_per_token);
  EXPECT_EQ(describe(needs),
            "bfloat16: weights 2.30 GiB, at least 2.32 GiB to serve, 6.30 GiB with a full context");
  model.max_position = 64;
  const MemoryNeeds brief = memory_needs(model, DType::kBf16);
  EXPECT_EQ(brief.smallest, brief.one_context);
}

}  // namespace
}  // namespace heddle::spec
