#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tensor_ref.h"
#include "spec/model_spec.h"

namespace heddle::engine {

/// Rows whose logits can exist at once, at least. There are more where the memory that layers need
/// anyway holds more; a step that samples more than that does so in turns, each of which reads the
/// head once.
constexpr std::int64_t kLogitRowsMin = 32;

/// The tensors that live only within a pass, for up to `tokens` tokens. They lie in one piece of
/// memory that is made once; what is never alive together shares it. Those that are multiplied with
/// weights are of compute_dtype() of the weights' type, marked (*); the others are float32.
struct Activations {
  ops::TensorRef hidden{};  ///< [tokens, hidden]
  ops::TensorRef normed{};  ///< (*) [tokens, hidden]
  // Of attention; where layers have heads of two sizes, with room for either: rows_of().
  /// [tokens, (heads + 2 kv_heads) head_dim], and as many gates as heads where there are any.
  ops::TensorRef qkv{};
  ops::TensorRef mixed{};   ///< (*) [tokens, heads head_dim]: what attention gives.
  ops::TensorRef states{};  ///< [tokens, heads (head_dim + 2)]: AttentionParts::left.
  // Of layers of linear attention:
  ops::TensorRef delta_in{};     ///< [tokens, channels() + values()]
  ops::TensorRef delta_rates{};  ///< [tokens, 2 value_heads]
  ops::TensorRef delta_out{};    ///< (*) [tokens, values()]
  ops::TensorRef gate_up{};      ///< [tokens, spec::gate_up_rows()]
  ops::TensorRef gated{};        ///< (*) [tokens, intermediate]
  /// [tokens, hidden]: what a layer adds, where that is normalised or scaled before. Of an encoder
  /// what is looked up.
  ops::TensorRef branch{};
  // Of models with experts.
  ops::TensorRef router{};          ///< [tokens, experts]
  ops::TensorRef chosen{};          ///< i32 [tokens, active experts]
  ops::TensorRef expert_weights{};  ///< [tokens, active experts]
  ops::TensorRef shared_gate{};     ///< [tokens, 1]
  ops::TensorRef expert_rows{};     ///< (*) [tokens, hidden]
  ops::TensorRef expert_in{};       ///< [tokens, 2 width of an expert]
  ops::TensorRef expert_gated{};    ///< (*) [tokens, width of an expert]
  ops::TensorRef expert_product{};  ///< [tokens, hidden]
  ops::TensorRef experts_branch{};  ///< [tokens, hidden]: `branch` of experts beside an MLP.
  ops::TensorRef picked{};          ///< [logit_rows(), hidden]: the rows that sample.
  ops::TensorRef head_in{};         ///< (*) [logit_rows(), hidden]: those, normalised.
  ops::TensorRef logits{};          ///< [logit_rows(), vocab]; of an encoder that scores hidden.
  ops::TensorRef told{};            ///< [kLogitRowsMin, vocab]: logits as they were, of those told.

  /// Most rows whose logits exist at once: at least kLogitRowsMin.
  [[nodiscard]] std::int64_t logit_rows() const { return logits.shape[0]; }

  /// Rows of `columns` in the memory of one of them, which has rows of as many or more.
  [[nodiscard]] static ops::TensorRef rows_of(const ops::TensorRef& tensor,
                                              std::int64_t tokens,
                                              std::int64_t columns);
  /// The first `tokens` rows of one of them.
  [[nodiscard]] static ops::TensorRef rows(const ops::TensorRef& tensor, std::int64_t tokens);
};

/// Whether what layers add is made apart from the hidden states, in Activations::branch.
[[nodiscard]] bool adds_apart(const spec::ModelSpec& model);

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
