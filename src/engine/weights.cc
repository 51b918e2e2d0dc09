#include "engine/weights.h"

#include <map>
#include <string>
#include <utility>

#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"

namespace heddle::engine {
namespace {

using store::Role;

/// Takes tensors out of a layout by what they are, and remembers the first that was wrong.
class Binder {
 public:
  Binder(const store::ImageLayout& layout, const std::byte* window) : window_(window) {
    for (const store::ImageTensor& tensor : layout.tensors) {
      tensors_[{tensor.role, tensor.layer}].push_back(&tensor);
    }
  }

  ConstTensorRef vector(Role role, std::int64_t layer, std::int64_t n) {
    const Found tensors = find(role, layer, n, 1);
    return tensors.size() != 1 ? ConstTensorRef{}
                               : ops::tensor_1d(window_ + tensors[0]->offset, tensors[0]->dtype, n);
  }
  ConstTensorRef vector_if(bool present, Role role, std::int64_t layer, std::int64_t n) {
    return present ? vector(role, layer, n) : ConstTensorRef{};
  }
  MatrixParts parts(Role role, std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    MatrixParts parts;
    for (const store::ImageTensor* tensor : find(role, layer, rows, columns)) {
      parts.push_back(
          ops::tensor_2d(window_ + tensor->offset, tensor->dtype, tensor->rows, tensor->columns));
    }
    return parts;
  }
  ConstTensorRef matrix(Role role, std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    const MatrixParts all = parts(role, layer, rows, columns);
    return all.size() == 1 ? all.front() : ConstTensorRef{};
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  using Found = std::vector<const store::ImageTensor*>;

  /// The tensors of a role, which have so many rows together; none, and a complaint, where they
  /// have not.
  Found find(Role role, std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    const auto found = tensors_.find({role, layer});
    std::int64_t there = 0;
    std::int64_t wide = columns;
    for (const store::ImageTensor* tensor : found == tensors_.end() ? Found{} : found->second) {
      there += tensor->rows;
      wide = tensor->columns == columns ? wide : tensor->columns;
    }
    if (there == rows && wide == columns) {
      return found->second;
    }
    if (complaint_.empty()) {
      complaint_ = "bind weights: role " + std::to_string(static_cast<int>(role)) + " of layer " +
                   std::to_string(layer) + " should be [" + std::to_string(rows) + ", " +
                   std::to_string(columns) + "], the image has ";
      complaint_ += found == tensors_.end()
                        ? "none"
                        : "[" + std::to_string(there) + ", " + std::to_string(wide) + "]";
    }
    return {};
  }

  const std::byte* window_;
  std::map<std::pair<Role, std::int64_t>, Found> tensors_{};
  std::string complaint_{};
};

void bind_experts(Binder& binder,
                  const spec::ModelSpec& model,
                  bool scaled,
                  std::int64_t layer,
                  LayerWeights& w) {
  const spec::Experts& experts = model.experts;
  const std::int64_t in = experts.count * 2 * experts.intermediate;
  const std::int64_t out = experts.count * model.hidden;
  w.router = binder.matrix(Role::kRouter, layer, experts.count, model.hidden);
  if (experts.beside) {
    w.experts_norm = binder.vector(Role::kExpertsNorm, layer, model.hidden);
    w.router_norm = binder.vector(Role::kRouterNorm, layer, model.hidden);
    w.mlp_own_norm = binder.vector(Role::kMlpOwnNorm, layer, model.hidden);
    w.experts_own_norm = binder.vector(Role::kExpertsOwnNorm, layer, model.hidden);
    w.expert_scales = binder.vector(Role::kExpertScales, layer, experts.count);
  } else if (model.intermediate > 0) {
    w.shared_gate = binder.matrix(Role::kSharedGate, layer, 1, model.hidden);
  }
  w.experts_gate_up = binder.parts(Role::kExpertsGateUp, layer, in, model.hidden);
  w.experts_gate_up_scale = binder.vector_if(scaled, Role::kExpertsGateUpScale, layer, in);
  w.experts_down = binder.matrix(Role::kExpertsDown, layer, out, experts.intermediate);
  w.experts_down_scale = binder.vector_if(scaled, Role::kExpertsDownScale, layer, out);
  w.router_bias = binder.vector_if(experts.biased, Role::kRouterBias, layer, experts.count);
  w.experts_gate_up_bias = binder.vector_if(experts.biased, Role::kExpertsGateUpBias, layer, in);
  const bool adds = experts.biased && spec::adds_once(model.shard);
  w.experts_down_bias = binder.vector_if(adds, Role::kExpertsDownBias, layer, out);
}

void bind_attention(Binder& binder,
                    const spec::ModelSpec& model,
                    bool scaled,
                    std::int64_t layer,
                    LayerWeights& w) {
  const std::int64_t hidden = model.hidden;
  const spec::Heads heads = spec::heads_of(model, layer);
  const std::int64_t qkv = heads.qkv() + (model.attention_gate ? heads.queries() : 0);
  const bool adds = spec::adds_once(model.shard);
  w.qkv = binder.parts(Role::kQkv, layer, qkv, hidden);
  w.qkv_scale = binder.vector_if(scaled, Role::kQkvScale, layer, qkv);
  w.qkv_bias = binder.vector_if(model.qkv_bias, Role::kQkvBias, layer, qkv);
  const bool normed = model.qk_norm || model.qk_norm_whole;
  const std::int64_t q_heads = model.qk_norm_whole ? heads.query : 1;
  const std::int64_t k_heads = model.qk_norm_whole ? heads.kv : 1;
  w.q_norm = binder.vector_if(normed, Role::kQNorm, layer, q_heads * heads.dim);
  w.k_norm = binder.vector_if(normed, Role::kKNorm, layer, k_heads * heads.dim);
  w.sinks = binder.vector_if(model.sinks, Role::kSinks, layer, model.heads);
  w.out = binder.matrix(Role::kOut, layer, hidden, heads.queries());
  w.out_scale = binder.vector_if(scaled, Role::kOutScale, layer, hidden);
  w.out_bias = binder.vector_if(model.out_bias && adds, Role::kOutBias, layer, hidden);
}

void bind_delta_rule(Binder& binder,
                     const spec::ModelSpec& model,
                     bool scaled,
                     std::int64_t layer,
                     LayerWeights& w) {
  const spec::LinearAttention& linear = model.linear;
  const std::int64_t in = linear.channels() + linear.values();
  w.delta_in = binder.parts(Role::kDeltaIn, layer, in, model.hidden);
  w.delta_in_scale = binder.vector_if(scaled, Role::kDeltaInScale, layer, in);
  w.delta_rates = binder.matrix(Role::kDeltaRates, layer, 2 * linear.value_heads, model.hidden);
  w.delta_conv = binder.matrix(Role::kDeltaConv, layer, linear.channels(), linear.kernel);
  w.delta_fading = binder.vector(Role::kDeltaFading, layer, linear.value_heads);
  w.delta_step_bias = binder.vector(Role::kDeltaStepBias, layer, linear.value_heads);
  w.delta_norm = binder.vector(Role::kDeltaNorm, layer, linear.value_dim);
  w.out = binder.matrix(Role::kOut, layer, model.hidden, linear.values());
  w.out_scale = binder.vector_if(scaled, Role::kOutScale, layer, model.hidden);
}

LayerWeights bind_layer(Binder& binder,
                        const spec::ModelSpec& model,
                        bool scaled,
                        std::int64_t layer) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t gate_up = spec::gate_up_rows(model);
  const bool adds = spec::adds_once(model.shard);
  LayerWeights w;
  const bool encodes = spec::is_encoder(model);
  const bool before = model.norms != spec::Norms::kAfter && !encodes;
  const bool after = model.norms != spec::Norms::kBefore;
  w.input_norm = binder.vector_if(before, Role::kInputNorm, layer, hidden);
  w.attention_norm = binder.vector_if(after, Role::kAttentionNorm, layer, hidden);
  w.mlp_norm = binder.vector_if(after, Role::kMlpNorm, layer, hidden);
  w.layer_scale = binder.vector_if(model.layer_scale, Role::kLayerScale, layer, 1);
  w.attention_norm_bias = binder.vector_if(encodes, Role::kAttentionNormBias, layer, hidden);
  w.mlp_norm_bias = binder.vector_if(encodes, Role::kMlpNormBias, layer, hidden);
  if (spec::keeps_state(model, layer)) {
    bind_delta_rule(binder, model, scaled, layer, w);
  } else {
    bind_attention(binder, model, scaled, layer, w);
  }
  w.post_norm = binder.vector_if(before, Role::kPostNorm, layer, hidden);
  if (model.experts.count > 0) {
    bind_experts(binder, model, scaled, layer, w);
  }
  if (model.intermediate == 0) {
    return w;
  }
  w.gate_up = binder.parts(Role::kGateUp, layer, gate_up, hidden);
  w.gate_up_scale = binder.vector_if(scaled, Role::kGateUpScale, layer, gate_up);
  w.gate_up_bias = binder.vector_if(model.mlp_bias, Role::kGateUpBias, layer, gate_up);
  w.down = binder.matrix(Role::kDown, layer, hidden, model.intermediate);
  w.down_scale = binder.vector_if(scaled, Role::kDownScale, layer, hidden);
  w.down_bias = binder.vector_if(model.mlp_bias && adds, Role::kDownBias, layer, hidden);
  return w;
}

void bind_encoder(Binder& binder, const spec::ModelSpec& model, DecoderWeights& w) {
  const spec::Encoder& encoder = model.encoder;
  const std::int64_t hidden = model.hidden;
  w.embedding = binder.matrix(Role::kEmbedding, -1, model.vocab, hidden);
  w.positions = binder.matrix(Role::kPositions, -1, encoder.positions, hidden);
  w.types = binder.matrix(Role::kTypes, -1, encoder.types, hidden);
  w.embedding_norm = binder.vector(Role::kEmbeddingNorm, -1, hidden);
  w.embedding_norm_bias = binder.vector(Role::kEmbeddingNormBias, -1, hidden);
  if (encoder.scores) {
    if (!encoder.bare) {
      w.score_dense = binder.matrix(Role::kScoreDense, -1, hidden, hidden);
      w.score_dense_bias = binder.vector(Role::kScoreDenseBias, -1, hidden);
    }
    w.score = binder.matrix(Role::kScore, -1, 1, hidden);
    w.score_bias = binder.vector(Role::kScoreBias, -1, 1);
  }
}

}  // namespace

Result<DecoderWeights> bind_weights(const spec::ModelSpec& model,
                                    const store::ImageLayout& layout,
                                    const std::byte* window) {
  Binder binder(layout, window);
  const bool scaled = layout.dtype == spec::DType::kI8;
  const std::int64_t vocab = spec::vocab_range(model).size();
  DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(model.layers));
  const spec::LayerRange own = spec::own_layers(model);
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    weights.layers[static_cast<std::size_t>(layer)] = bind_layer(binder, model, scaled, layer);
  }
  if (spec::is_encoder(model)) {
    bind_encoder(binder, model, weights);
  } else if (spec::leads(model)) {
    weights.embedding = binder.matrix(Role::kEmbedding, -1, vocab, model.hidden);
    weights.final_norm = binder.vector(Role::kFinalNorm, -1, model.hidden);
    weights.head = model.tied_embeddings ? weights.embedding
                                         : binder.matrix(Role::kHead, -1, vocab, model.hidden);
    weights.head_scale =
        binder.vector_if(scaled && !model.tied_embeddings, Role::kHeadScale, -1, vocab);
  }
  if (!binder.complaint().empty()) {
    return Error{Code::kCorrupt, binder.complaint()};
  }
  return weights;
}

}  // namespace heddle::engine
