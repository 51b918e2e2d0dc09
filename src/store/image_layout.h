#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/dtype.h"
#include "spec/model_spec.h"

namespace heddle::store {

/// What a tensor of the image is, in the order in which a forward pass reads them. Of a shard
/// (spec/shard.h) heads, kv_heads and intermediate are its own, and so is vocab here: the rows of
/// its vocab_range().
enum class Role : std::uint8_t {
  kEmbedding,  ///< [vocab, hidden]
  kInputNorm,  ///< [hidden]
  /// [(heads + 2 kv_heads) head_dim, hidden], by the layer's spec::heads_of(): q, k and v rows
  /// adjacent, those of k once more where keys are values, and where attention is gated as many
  /// rows of gates as of q. Where those are stored as different types of blocks, several tensors
  /// behind each other, each of as many rows as are alike. So is kGateUp.
  kQkv,
  kQkvBias,     ///< [(heads + 2 kv_heads) head_dim]
  kQNorm,       ///< [head_dim], or of all heads where ModelSpec::qk_norm_whole.
  kKNorm,       ///< Likewise.
  kOut,         ///< [hidden, heads head_dim]
  kOutBias,     ///< [hidden]; like kDownBias, of shards the first alone has it.
  kPostNorm,    ///< [hidden]: before the MLP; kInputNorm is that before attention.
  kGateUp,      ///< [2 intermediate, hidden]: gate rows, then up rows.
  kGateUpBias,  ///< [2 intermediate]
  kDown,        ///< [hidden, intermediate]
  kDownBias,    ///< [hidden]
  kFinalNorm,   ///< [hidden]
  kHead,        ///< [vocab, hidden]; absent where embeddings are tied.
  // Of layers with experts; kGateUp and kDown are of the MLP that all tokens share, if there is
  // one.
  kRouter,      ///< [experts, hidden], of compute_dtype().
  kSharedGate,  ///< [1, hidden], likewise: how much of the shared MLP a token takes.
  /// [experts 2 intermediate, hidden]: of each expert gate rows, then up rows. Where those are
  /// stored as different types of blocks, two tensors: the gate rows of all, the up rows of all.
  kExpertsGateUp,
  kExpertsDown,  ///< [experts hidden, intermediate]
  // What the rows of an int8 matrix are multiplied with, each behind its matrix; in no other image.
  kQkvScale,
  kOutScale,
  kGateUpScale,
  kDownScale,
  kHeadScale,
  kExpertsGateUpScale,
  kExpertsDownScale,
  kAttentionNorm,  ///< [hidden]: of what attention gives, where ModelSpec::norms says so.
  kMlpNorm,        ///< [hidden]: of what the MLP gives, likewise.
  // Of layers of linear attention (spec::LinearAttention), in place of kQkv and what goes with it;
  // kOut has values() columns there.
  kDeltaIn,        ///< [channels() + values(), hidden]: q, k and v of all heads, then gates z.
  kDeltaInScale,   ///< Of int8.
  kDeltaRates,     ///< [2 value_heads, hidden], of compute_dtype(): b, then a.
  kDeltaConv,      ///< [channels(), kernel], float32.
  kDeltaFading,    ///< [value_heads]: A, which is -exp(A_log).
  kDeltaStepBias,  ///< [value_heads]: dt_bias.
  kDeltaNorm,      ///< [value_dim]: of what a head gives.
  kSinks,          ///< [heads], where ModelSpec::sinks says so.
  // Where Experts::biased says so.
  kRouterBias,         ///< [experts]
  kExpertsGateUpBias,  ///< [experts 2 intermediate]: of each expert gates, then ups.
  kExpertsDownBias,    ///< [experts hidden]; of shards the first alone has it.
  // Of encoders (spec::Encoder), in which kGateUp has [intermediate, hidden]: ups alone.
  kPositions,          ///< [positions, hidden], of compute_dtype(), as the next.
  kTypes,              ///< [types, hidden]
  kEmbeddingNorm,      ///< [hidden]: of what is looked up, summed.
  kEmbeddingNormBias,  ///< [hidden]
  kAttentionNormBias,  ///< [hidden]
  kMlpNormBias,        ///< [hidden]
  kScoreDense,      ///< [hidden, hidden], of compute_dtype(): where Encoder::scores, as the rest.
  kScoreDenseBias,  ///< [hidden]
  kScore,           ///< [1, hidden], of compute_dtype().
  kScoreBias,       ///< [1]
  // Where Experts::beside says so: norms of what goes into experts and into the router, of what the
  // MLP gives, and of what experts give.
  kExpertsNorm,     ///< [hidden]
  kRouterNorm,      ///< [hidden]
  kMlpOwnNorm,      ///< [hidden]
  kExpertsOwnNorm,  ///< [hidden]
  kExpertScales,    ///< [experts]: what the weights of each are multiplied with.
  kLayerScale,      ///< [1], where ModelSpec::layer_scale.
};

/// One checkpoint tensor that fills (part of) an image tensor: rows [row, row + rows). Of the
/// checkpoint's tensor these are, where the model is a shard, a part: rows from `first_row` on, and
/// of them as many columns as the image tensor has from `first_column` on.
struct ImageSource {
  std::string name{};  ///< As in the checkpoint: "model.layers.3.self_attn.q_proj.weight".
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t stored_rows = 0;  ///< Of the checkpoint's tensor, as the next.
  std::int64_t stored_columns = 1;
};

struct ImageTensor {
  Role role = Role::kEmbedding;
  std::int64_t layer = -1;  ///< -1 outside the layers.
  std::int64_t rows = 0;
  std::int64_t columns = 1;  ///< 1 for vectors.
  /// Norms, biases and scales are float32 always. Blocks lie in panels (spec/block_panels.h).
  spec::DType dtype = spec::DType::kBf16;
  std::uint64_t offset = 0;  ///< Bytes from the start of the image; a multiple of 64.
  std::uint64_t bytes = 0;
  /// A checkpoint may have it less 1 (ModelSpec::norm_less_one).
  bool less_one = false;
  /// Numbers below 0, of which a checkpoint may have log(-x).
  bool logarithm = false;
  /// In row order, covering all rows; none for scales, which come of the tensor before.
  std::vector<ImageSource> sources{};
};

/// How the weights of a model lie in its image: one contiguous range of bytes in the order of
/// execution (embedding, layer 0, ..., final norm, head; of an encoder that scores, its head), so
/// that layer i can run as soon as the first `stage_end[i + 1]` bytes are there. The same in the
/// host cache and in a device's window. A stage of a pipeline (spec/pipe_stage.h) has its own
/// layers alone, and the embedding, final norm and head where it leads: what it has not takes no
/// bytes.
struct ImageLayout {
  /// Of the matrices; the embedding, which is looked up, is compute_dtype() of it. Where this is
  /// kStored, each has a type of its own: spec::matrix_dtype().
  spec::DType dtype = spec::DType::kBf16;
  std::vector<ImageTensor> tensors{};
  /// Bytes that must be present before each stage: [0] embedding, [1 + i] layer i, [1 + layers] the
  /// final norm and head. Non-decreasing; the last equals `bytes`. A tied head needs nothing more.
  std::vector<std::uint64_t> stage_end{};
  std::uint64_t bytes = 0;  ///< Of the whole image; the last page is padded by whoever stores it.
  /// The first so many are what a device has all of. Where experts take turns in its memory
  /// (spec::Experts::slots) these are behind, layer after layer, and all stages need all of the
  /// image: no router says beforehand which it takes. Elsewhere as `bytes`.
  std::uint64_t resident_bytes = 0;
};

/// Lays out the image of `model`, which may be a shard or a stage, with matrices as `dtype`
/// (float32, bfloat16, int8 or kStored).
[[nodiscard]] ImageLayout plan_image(const spec::ModelSpec& model, spec::DType dtype);

}  // namespace heddle::store
