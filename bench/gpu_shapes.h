#pragma once

// The models that a GPU is measured with, and how much of everything.

#include <cstdint>
#include <string>
#include <vector>

#include "spec/block_panels.h"
#include "spec/model_spec.h"

namespace heddle::bench {

/// A model of this shape, and the sizes of what is measured with it.
struct Shape {
  std::string name{};
  spec::ModelSpec model{};
  spec::DType dtype = spec::DType::kBf16;           ///< Of its image: that, or kStored.
  std::int64_t context = 1024;                      ///< Tokens before a decode step.
  std::vector<std::int64_t> batches{1, 32, 128};    ///< Sequences that decode together.
  std::int64_t prompt = 2048;                       ///< Tokens of a prefill.
  std::int64_t steps = 32;                          ///< Of which a decode's median is.
  int rounds = 7;                                   ///< Of everything else.
  std::int64_t gemm = 8192;                         ///< Rows and columns of the largest product.
  std::uint64_t copied = std::uint64_t{4} << 30U;   ///< At most, for ceilings [bytes].
  std::uint64_t handed = std::uint64_t{10} << 30U;  ///< KV that changes hands [bytes].
  std::vector<std::int64_t> mapped{1, 8, 64};       ///< Pages at once.
};

inline Shape llama_3_8b() {
  return {.name = "llama-3-8b",
          .model = {.hidden = 4096,
                    .layers = 32,
                    .heads = 32,
                    .kv_heads = 8,
                    .head_dim = 128,
                    .intermediate = 14336,
                    .vocab = 128256,
                    .max_position = 8192,
                    .rms_eps = 1e-5,
                    .rope_theta = 500000.0,
                    .window = std::vector<std::int64_t>(32, 0)}};
}

inline Shape qwen25_14b() {
  return {.name = "qwen2.5-14b",
          .model = {.architecture = spec::Architecture::kQwen2,
                    .hidden = 5120,
                    .layers = 48,
                    .heads = 40,
                    .kv_heads = 8,
                    .head_dim = 128,
                    .intermediate = 13824,
                    .vocab = 152064,
                    .max_position = 32768,
                    .rms_eps = 1e-6,
                    .rope_theta = 1000000.0,
                    .qkv_bias = true,
                    .window = std::vector<std::int64_t>(48, 0)}};
}

/// The same model with matrices in blocks of `format`; the embedding is plain.
inline Shape in_blocks(Shape shape, const std::string& name, spec::DType format) {
  shape.name = name;
  shape.dtype = spec::DType::kStored;
  shape.model.formats.assign(spec::format_count(shape.model.layers), format);
  shape.model.formats[spec::format_index(spec::Matrix::kEmbedding, 0)] = spec::DType::kBf16;
  return shape;
}

/// Experts of which a token takes eight, in blocks.
inline Shape qwen3_30b_a3b() {
  const Shape plain{
      .model = {.architecture = spec::Architecture::kQwen3Moe,
                .hidden = 2048,
                .layers = 48,
                .heads = 32,
                .kv_heads = 4,
                .head_dim = 128,
                .vocab = 151936,
                .max_position = 32768,
                .rms_eps = 1e-6,
                .rope_theta = 1000000.0,
                .qk_norm = true,
                .window = std::vector<std::int64_t>(48, 0),
                .experts = {.count = 128, .active = 8, .intermediate = 768, .normalised = true}}};
  return in_blocks(plain, "qwen3-30b-a3b-q4_k", spec::DType::kQ4K);
}

/// For the emulated driver, whose times mean nothing.
inline Shape tiny() {
  return {.name = "tiny",
          .model = {.hidden = 128,
                    .layers = 2,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 64,
                    .intermediate = 192,
                    .vocab = 256,
                    .max_position = 256,
                    .window = {0, 0}},
          .context = 20,
          .batches = {1, 2, 4},
          .prompt = 40,
          .steps = 3,
          .rounds = 2,
          .gemm = 64,
          .copied = std::uint64_t{1} << 20U,
          .handed = std::uint64_t{40} << 10U};
}

/// Likewise with experts in blocks.
inline Shape tiny_experts() {
  Shape shape = tiny();
  shape.model.architecture = spec::Architecture::kQwen3Moe;
  shape.model.intermediate = 0;
  shape.model.experts = {.count = 4, .active = 2, .intermediate = 64, .normalised = true};
  return in_blocks(shape, "tiny-experts", spec::DType::kQ40);
}

/// All that options name.
inline std::vector<Shape> all_shapes() {
  return {llama_3_8b(),
          qwen25_14b(),
          in_blocks(llama_3_8b(), "llama-3-8b-q4_k", spec::DType::kQ4K),
          in_blocks(llama_3_8b(), "llama-3-8b-fp8", spec::DType::kF8),
          in_blocks(llama_3_8b(), "llama-3-8b-w8a8", spec::DType::kF8Both),
          qwen3_30b_a3b(),
          tiny(),
          tiny_experts()};
}

}  // namespace heddle::bench
