#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tensor_ref.h"
#include "spec/model_spec.h"

namespace heddle::engine {

/// Most rows whose logits exist at once: a step that samples more does so in turns.
constexpr std::int64_t kLogitRowsMax = 32;

/// The tensors that live only within a pass, for up to `tokens` tokens. They lie in one piece of
/// memory that is made once; what is never alive together shares it. Those that are multiplied with
/// weights are of compute_dtype() of the weights' type, marked (*); the others are float32.
struct Activations {
  ops::TensorRef hidden{};   ///< [tokens, hidden]
  ops::TensorRef normed{};   ///< (*) [tokens, hidden]
  ops::TensorRef qkv{};      ///< [tokens, (heads + 2 kv_heads) head_dim]
  ops::TensorRef mixed{};    ///< (*) [tokens, heads head_dim]: what attention gives.
  ops::TensorRef gate_up{};  ///< [tokens, 2 intermediate]
  ops::TensorRef gated{};    ///< (*) [tokens, intermediate]
  ops::TensorRef picked{};   ///< [kLogitRowsMax, hidden]: the rows that sample.
  ops::TensorRef head_in{};  ///< (*) [kLogitRowsMax, hidden]: those, normalised.
  ops::TensorRef logits{};   ///< [kLogitRowsMax, vocab]

  /// The first `tokens` rows of one of them.
  [[nodiscard]] static ops::TensorRef rows(const ops::TensorRef& tensor, std::int64_t tokens);
};

/// Lays out the activations of `model` with matrices of `weights`, for `tokens` tokens from
/// `memory` on, 64-byte aligned.
[[nodiscard]] Activations place_activations(const spec::ModelSpec& model,
                                            spec::DType weights,
                                            std::int64_t tokens,
                                            std::byte* memory);

/// Bytes of those.
[[nodiscard]] std::size_t activation_bytes(const spec::ModelSpec& model,
                                           spec::DType weights,
                                           std::int64_t tokens);

}  // namespace heddle::engine
