#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "ops/tensor_ref.h"
#include "spec/model_spec.h"
#include "store/image_layout.h"

namespace heddle::engine {

using ops::ConstTensorRef;

/// A matrix whose rows may be of several types, as files with blocks have them: one after the
/// other.
using MatrixParts = std::vector<ConstTensorRef>;

/// The weights of one layer, where they lie in the window. Absent ones have no data. Of a shard
/// heads, kv_heads and intermediate are its own; out_bias and down_bias has the first alone.
struct LayerWeights {
  ConstTensorRef input_norm{};  ///< [hidden]
  /// [(heads + 2 kv_heads) head_dim, hidden], by the layer's spec::heads_of(); where attention is
  /// gated, with the gates of heads.
  MatrixParts qkv{};
  ConstTensorRef qkv_scale{};  ///< By row, where `qkv` is int8; absent otherwise, as the others.
  ConstTensorRef qkv_bias{};   ///< Absent without spec.qkv_bias.
  /// [head_dim], with spec.qk_norm_whole of all heads; absent without either, like k_norm.
  ConstTensorRef q_norm{};
  ConstTensorRef k_norm{};
  ConstTensorRef sinks{};  ///< [heads]; absent without spec.sinks.
  ConstTensorRef out{};    ///< [hidden, heads head_dim], or of linear attention [hidden, values()]
  ConstTensorRef out_scale{};
  ConstTensorRef out_bias{};
  /// [hidden]: before the MLP. This and input_norm are absent where spec.norms is kAfter.
  ConstTensorRef post_norm{};
  ConstTensorRef attention_norm{};  ///< [hidden]: of what attention gives; absent with kBefore,
  ConstTensorRef mlp_norm{};        ///< as this.
  ConstTensorRef layer_scale{};     ///< [1]; absent without spec.layer_scale.
  ConstTensorRef attention_norm_bias{};  ///< [hidden], of encoders alone, as the next.
  ConstTensorRef mlp_norm_bias{};
  MatrixParts gate_up{};  ///< [spec::gate_up_rows(), hidden]
  ConstTensorRef gate_up_scale{};
  ConstTensorRef gate_up_bias{};
  ConstTensorRef down{};  ///< [hidden, intermediate]
  ConstTensorRef down_scale{};
  ConstTensorRef down_bias{};
  // Of a layer of linear attention, which has none of qkv and what goes with it; see store::Role.
  MatrixParts delta_in{};  ///< [channels() + values(), hidden]
  ConstTensorRef delta_in_scale{};
  ConstTensorRef delta_rates{};      ///< [2 value_heads, hidden]
  ConstTensorRef delta_conv{};       ///< [channels(), kernel]
  ConstTensorRef delta_fading{};     ///< [value_heads]
  ConstTensorRef delta_step_bias{};  ///< [value_heads]
  ConstTensorRef delta_norm{};       ///< [value_dim]
  // Of a layer with experts; then gate_up and down are those of the MLP that all tokens share, and
  // absent where there is none.
  ConstTensorRef router{};       ///< [experts, hidden]
  ConstTensorRef shared_gate{};  ///< [1, hidden]
  /// [experts 2 intermediate, hidden], or gates and ups apart.
  MatrixParts experts_gate_up{};
  ConstTensorRef experts_gate_up_scale{};
  ConstTensorRef experts_down{};  ///< [experts hidden, intermediate]
  ConstTensorRef experts_down_scale{};
  // Absent where they are not beside an MLP that all tokens take; see store::Role.
  ConstTensorRef experts_norm{};          ///< [hidden]
  ConstTensorRef router_norm{};           ///< [hidden]
  ConstTensorRef mlp_own_norm{};          ///< [hidden]
  ConstTensorRef experts_own_norm{};      ///< [hidden]
  ConstTensorRef expert_scales{};         ///< [experts]
  ConstTensorRef router_bias{};           ///< [experts]; absent without biases, as the next.
  ConstTensorRef experts_gate_up_bias{};  ///< [experts 2 intermediate]: gates first.
  ConstTensorRef experts_down_bias{};     ///< [experts hidden]
};

/// Of a shard vocab is the size of its spec::vocab_range(). A stage of a pipeline has its own
/// layers alone, by their number in the model, and all else where it leads.
struct DecoderWeights {
  ConstTensorRef embedding{};  ///< [vocab, hidden]
  std::vector<LayerWeights> layers{};
  ConstTensorRef final_norm{};  ///< [hidden]
  ConstTensorRef head{};        ///< [vocab, hidden]; the embedding where they are tied.
  ConstTensorRef head_scale{};  ///< Where the head is int8, which the embedding never is.
  // Of encoders, which have neither final norm nor head: see store::Role.
  ConstTensorRef positions{};            ///< [positions, hidden]
  ConstTensorRef types{};                ///< [types, hidden]
  ConstTensorRef embedding_norm{};       ///< [hidden]
  ConstTensorRef embedding_norm_bias{};  ///< [hidden]
  ConstTensorRef score_dense{};          ///< [hidden, hidden]; absent without Encoder::scores,
  ConstTensorRef score_dense_bias{};     ///< as these.
  ConstTensorRef score{};                ///< [1, hidden]
  ConstTensorRef score_bias{};           ///< [1]
};

/// Finds the weights of `model` in an image at `window`. Reads none of them. kCorrupt, naming the
/// tensor, if the layout has not what the model needs.
Result<DecoderWeights> bind_weights(const spec::ModelSpec& model,
                                    const store::ImageLayout& layout,
                                    const std::byte* window);

}  // namespace heddle::engine
