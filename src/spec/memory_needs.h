#pragma once

#include <cstdint>
#include <string>

#include "spec/dtype.h"
#include "spec/model_spec.h"

namespace heddle::spec {

/// Weights of the model, each counted once; a tied head is the embedding.
[[nodiscard]] std::int64_t parameter_count(const ModelSpec& model);

/// Those of them that a token uses: of each layer's experts the few that it takes. The embedding
/// counts whole.
[[nodiscard]] std::int64_t active_parameter_count(const ModelSpec& model);

/// Bytes of the weights with matrices as `dtype`; norms, biases and the scales of int8 are float32
/// always, embeddings compute_dtype(dtype); of kStored, each matrix has what model.formats says.
/// The image that holds them is a little larger, by the alignment of its tensors.
[[nodiscard]] std::uint64_t weight_bytes(const ModelSpec& model, DType dtype);

/// KV is of kv_dtype(model.kv, dtype) throughout.
///
/// Bytes that one more token adds to the KV of a sequence while no window is full: two tensors (key
/// and value) of kv_heads rows for each layer of attention, each of kv_row_bytes(); of an encoder
/// for one layer, as they have them in turn.
[[nodiscard]] std::uint64_t kv_bytes_per_token(const ModelSpec& model, DType dtype);

/// Bytes of the state that a sequence has beside KV, in float32 always: of each layer of linear
/// attention a key_dim by value_dim matrix for each value head, and the last inputs of its
/// convolution. How it lies in pages (engine/state_plan.h) takes somewhat more.
[[nodiscard]] std::uint64_t state_bytes(const ModelSpec& model);

/// Bytes of KV that a sequence of `tokens` tokens holds; a layer with a window keeps no more than
/// the window. With its state.
[[nodiscard]] std::uint64_t kv_bytes(const ModelSpec& model, DType dtype, std::int64_t tokens);

/// A device that cannot hold the KV of this many tokens (or of the model's whole context, if that
/// is less) beside the weights is of no use to the model.
inline constexpr std::int64_t kSmallestContext = 512;

/// What a model asks of a device. Payload alone: page rounding and workspace come on top.
struct MemoryNeeds {
  DType dtype = DType::kBf16;      ///< Of weight matrices.
  std::uint64_t weights = 0;       ///< Bytes.
  std::uint64_t kv_per_token = 0;  ///< Bytes.
  std::uint64_t state = 0;         ///< Bytes of each sequence, beside KV.
  std::uint64_t smallest = 0;      ///< Bytes: weights, KV of kSmallestContext tokens, a state.
  std::uint64_t one_context = 0;   ///< Bytes: weights, and KV of one sequence at full length.
};

[[nodiscard]] MemoryNeeds memory_needs(const ModelSpec& model, DType dtype);

/// "bfloat16: weights 2.31 MiB, at least 3.06 MiB to serve, 5.31 MiB with a full context".
[[nodiscard]] std::string describe(const MemoryNeeds& needs);

}  // namespace heddle::spec
