#include "store/image_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "spec/block_panels.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"
#include "store/expert_names.h"

namespace heddle::store {
namespace {

using spec::Matrix;

constexpr std::uint64_t kAlignment = 64;  // A cache line, and the widest vector load.

/// Appends tensors one behind the other.
class Planner {
 public:
  Planner(const spec::ModelSpec& model, spec::DType dtype) : model_(model) {
    layout_.dtype = dtype;
  }

  ImageLayout plan() && {
    return spec::is_encoder(model_) ? std::move(*this).plan_encoder()
                                    : std::move(*this).plan_decoder();
  }

 private:
  ImageLayout plan_decoder() && {
    const spec::LayerRange own = spec::own_layers(model_);
    if (spec::leads(model_)) {
      matrix(Role::kEmbedding,
             std::nullopt,
             all_columns(model_.hidden),
             {vocabulary(Matrix::kEmbedding, "model.embed_tokens.weight")});
    }
    end_stage();
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      if (own.contains({.begin = layer, .end = layer + 1})) {
        layer_ = layer;
        if (model_.norms != spec::Norms::kAfter) {
          norm(Role::kInputNorm, name("input_layernorm.weight"), model_.hidden);
        }
        if (spec::keeps_state(model_, layer)) {
          plan_delta_rule();
        } else {
          plan_attention();
        }
        if (model_.norms != spec::Norms::kAfter) {
          norm(Role::kPostNorm, mlp_norm_name(), model_.hidden);
        }
        if (model_.experts.count > 0) {
          plan_experts();
        }
        if (model_.intermediate > 0) {
          const bool shared = model_.experts.count > 0 && !model_.experts.beside;
          plan_mlp(shared ? "mlp.shared_expert" : "mlp");
        }
        if (model_.norms != spec::Norms::kBefore) {
          norm(Role::kMlpNorm, name("post_feedforward_layernorm.weight"), model_.hidden);
        }
        if (model_.layer_scale) {
          vector(Role::kLayerScale, {whole(name("layer_scalar"), 1)});
        }
      }
      end_stage();
    }
    layer_ = -1;
    if (spec::leads(model_)) {
      plan_end();
    }
    layout_.resident_bytes = end_;
    for (ImageTensor& tensor : std::exchange(apart_, {})) {
      place_next(std::move(tensor));
    }
    end_stage();
    layout_.bytes = end_;
    if (model_.experts.slots > 0) {
      std::ranges::fill(layout_.stage_end, end_);
    } else {
      layout_.resident_bytes = end_;
    }
    return std::move(layout_);
  }

  ImageLayout plan_encoder() && {
    const auto table = [&](Role role, std::string_view words, std::int64_t rows) {
      add(role,
          spec::compute_dtype(layout_.dtype),
          all_columns(model_.hidden),
          {whole(fmt::format("embeddings.{}_embeddings.weight", words), rows)});
    };
    table(Role::kEmbedding, "word", model_.vocab);
    table(Role::kPositions, "position", model_.encoder.positions);
    table(Role::kTypes, "token_type", model_.encoder.types);
    biased(Role::kEmbeddingNorm, Role::kEmbeddingNormBias, "embeddings.LayerNorm");
    end_stage();
    for (layer_ = 0; layer_ < model_.layers; ++layer_) {
      plan_encoder_layer(fmt::format("encoder.layer.{}.", layer_));
      end_stage();
    }
    layer_ = -1;
    if (model_.encoder.scores) {
      plan_score();
    }
    end_stage();
    layout_.bytes = end_;
    return std::move(layout_);
  }

  /// Two vectors of the hidden width: what a norm multiplies with and what it adds.
  void biased(Role weight, Role bias, const std::string& name) {
    vector(weight, {whole(name + ".weight", model_.hidden)});
    vector(bias, {whole(name + ".bias", model_.hidden)});
  }

  void plan_encoder_layer(const std::string& layer) {
    const std::int64_t width = model_.intermediate;
    std::vector<Part> rows;
    std::vector<Part> biases;
    for (const auto& [part, matrix] : {std::pair("query", Matrix::kQ),
                                       std::pair("key", Matrix::kK),
                                       std::pair("value", Matrix::kV)}) {
      const std::string name = fmt::format("{}attention.self.{}.", layer, part);
      rows.push_back(whole(name + "weight", model_.hidden, matrix));
      biases.push_back(whole(name + "bias", model_.hidden));
    }
    const auto product = [&](Role role, Role scale, std::int64_t columns, Part part) {
      matrix(role, scale, all_columns(columns), {std::move(part)});
    };
    const std::string out = layer + "attention.output.";
    matrix(Role::kQkv, Role::kQkvScale, all_columns(model_.hidden), std::move(rows));
    vector(Role::kQkvBias, std::move(biases));
    product(Role::kOut,
            Role::kOutScale,
            model_.hidden,
            whole(out + "dense.weight", model_.hidden, Matrix::kOut));
    vector(Role::kOutBias, {whole(out + "dense.bias", model_.hidden)});
    biased(Role::kAttentionNorm, Role::kAttentionNormBias, out + "LayerNorm");
    product(Role::kGateUp,
            Role::kGateUpScale,
            model_.hidden,
            whole(layer + "intermediate.dense.weight", width, Matrix::kUp));
    vector(Role::kGateUpBias, {whole(layer + "intermediate.dense.bias", width)});
    product(Role::kDown,
            Role::kDownScale,
            width,
            whole(layer + "output.dense.weight", model_.hidden, Matrix::kDown));
    vector(Role::kDownBias, {whole(layer + "output.dense.bias", model_.hidden)});
    biased(Role::kMlpNorm, Role::kMlpNormBias, layer + "output.LayerNorm");
  }

  /// BERT's checkpoints call the first product of the head a pooler.
  void plan_score() {
    const bool bert = model_.architecture == spec::Architecture::kBert;
    const std::string dense = bert ? "pooler.dense" : "classifier.dense";
    const std::string score = bert ? "classifier" : "classifier.out_proj";
    const spec::DType plain = spec::compute_dtype(layout_.dtype);
    const Columns columns = all_columns(model_.hidden);
    if (!model_.encoder.bare) {
      add(Role::kScoreDense, plain, columns, {whole(dense + ".weight", model_.hidden)});
      vector(Role::kScoreDenseBias, {whole(dense + ".bias", model_.hidden)});
    }
    add(Role::kScore, plain, columns, {whole(score + ".weight", 1)});
    vector(Role::kScoreBias, {whole(score + ".bias", 1)});
  }

  void plan_end() {
    norm(Role::kFinalNorm, "model.norm.weight", model_.hidden);
    if (!model_.tied_embeddings) {
      matrix(Role::kHead,
             Role::kHeadScale,
             all_columns(model_.hidden),
             {vocabulary(Matrix::kHead, "lm_head.weight")});
    }
  }

  /// Rows of a checkpoint tensor: `rows` of `stored` ones, from `first` on.
  struct Part {
    std::string name;
    std::int64_t rows;
    std::int64_t first;
    std::int64_t stored;
    Matrix matrix = Matrix::kQ;  ///< Unless it is a vector.
  };
  /// Columns of one, likewise.
  struct Columns {
    std::int64_t count = 1;
    std::int64_t first = 0;
    std::int64_t stored = 1;
  };

  static Part whole(std::string name, std::int64_t rows, Matrix matrix = Matrix::kQ) {
    return {.name = std::move(name), .rows = rows, .first = 0, .stored = rows, .matrix = matrix};
  }
  /// Each rank has `rows`, one after the other.
  [[nodiscard]] Part divided(std::string name,
                             std::int64_t rows,
                             Matrix matrix = Matrix::kQ) const {
    const auto& [rank, ranks] = model_.shard;
    return {.name = std::move(name),
            .rows = rows,
            .first = rank * rows,
            .stored = ranks * rows,
            .matrix = matrix};
  }
  [[nodiscard]] Part vocabulary(Matrix matrix, std::string name) const {
    const spec::VocabRange own = spec::vocab_range(model_);
    return {.name = std::move(name),
            .rows = own.size(),
            .first = own.begin,
            .stored = model_.vocab,
            .matrix = matrix};
  }
  static Columns all_columns(std::int64_t count) {
    return {.count = count, .first = 0, .stored = count};
  }
  [[nodiscard]] Columns divided_columns(std::int64_t count) const {
    const auto& [rank, ranks] = model_.shard;
    return {.count = count, .first = rank * count, .stored = ranks * count};
  }

  void plan_attention() {
    const spec::Heads heads = spec::heads_of(model_, layer_);
    const std::int64_t q = heads.queries();
    const std::int64_t kv = heads.keys();
    matrix(Role::kQkv, Role::kQkvScale, all_columns(model_.hidden), qkv_parts(q, kv));
    if (model_.qkv_bias) {
      vector(Role::kQkvBias,
             {divided(name("self_attn.q_proj.bias"), q),
              divided(name("self_attn.k_proj.bias"), kv),
              divided(name(fmt::format("self_attn.{}.bias", value_name())), kv)});
    }
    if (model_.qk_norm || model_.qk_norm_whole) {
      norm(Role::kQNorm, name("self_attn.q_norm.weight"), model_.qk_norm ? heads.dim : q);
      norm(Role::kKNorm, name("self_attn.k_norm.weight"), model_.qk_norm ? heads.dim : kv);
    }
    if (model_.sinks) {
      vector(Role::kSinks, {divided(name("self_attn.sinks"), model_.heads)});
    }
    matrix(Role::kOut,
           Role::kOutScale,
           divided_columns(q),
           {whole(name("self_attn.o_proj.weight"), model_.hidden, Matrix::kOut)});
    if (model_.out_bias && spec::adds_once(model_.shard)) {
      vector(Role::kOutBias, {whole(name("self_attn.o_proj.bias"), model_.hidden)});
    }
    if (model_.norms != spec::Norms::kBefore) {
      norm(Role::kAttentionNorm, name("post_attention_layernorm.weight"), model_.hidden);
    }
  }

  /// Rows of a checkpoint's tensor that several of ours are in, one behind the other.
  [[nodiscard]] Part within(std::string name,
                            std::int64_t rows,
                            std::int64_t before,
                            std::int64_t stored,
                            Matrix matrix) const {
    const auto& [rank, ranks] = model_.shard;
    return {.name = std::move(name),
            .rows = rows,
            .first = ranks * before + rank * rows,
            .stored = ranks * stored,
            .matrix = matrix};
  }

  [[nodiscard]] bool is_fused() const { return model_.architecture == spec::Architecture::kPhi3; }

  [[nodiscard]] std::vector<Part> qkv_parts(std::int64_t q, std::int64_t kv) const {
    if (is_fused()) {
      const std::string fused = name("self_attn.qkv_proj.weight");
      const std::int64_t all = q + 2 * kv;
      return {within(fused, q, 0, all, Matrix::kQ),
              within(fused, kv, q, all, Matrix::kK),
              within(fused, kv, q + kv, all, Matrix::kV)};
    }
    if (model_.attention_gate) {
      return gated_qkv_parts(kv);
    }
    return {divided(name("self_attn.q_proj.weight"), q, Matrix::kQ),
            divided(name("self_attn.k_proj.weight"), kv, Matrix::kK),
            divided(name(fmt::format("self_attn.{}.weight", value_name())), kv, Matrix::kV)};
  }

  /// What a checkpoint calls the projection that values come of.
  [[nodiscard]] std::string_view value_name() const {
    const bool global = spec::rope_of(model_, layer_) == spec::LayerRope::kModels;
    return model_.keys_are_values && global ? "k_proj" : "v_proj";
  }

  /// Of gated attention a checkpoint has the rows of each head's query and then those of its gate.
  [[nodiscard]] std::vector<Part> gated_qkv_parts(std::int64_t kv) const {
    const std::int64_t d = model_.head_dim;
    const auto of_heads = [&](std::int64_t first) {
      return slices(name("self_attn.q_proj.weight"), model_.heads, 2 * d, first, d, Matrix::kQ);
    };
    std::vector<Part> parts = of_heads(0);
    parts.push_back(whole(name("self_attn.k_proj.weight"), kv, Matrix::kK));
    parts.push_back(whole(name("self_attn.v_proj.weight"), kv, Matrix::kV));
    const std::vector<Part> gates = of_heads(d);
    parts.insert(parts.end(), gates.begin(), gates.end());
    return parts;
  }

  /// Of a tensor whose rows are those of `count` groups of `group` rows, rows [first, first + rows)
  /// of each.
  static std::vector<Part> slices(const std::string& tensor,
                                  std::int64_t count,
                                  std::int64_t group,
                                  std::int64_t first,
                                  std::int64_t rows,
                                  Matrix matrix) {
    std::vector<Part> parts;
    for (std::int64_t i = 0; i < count; ++i) {
      parts.push_back({.name = tensor,
                       .rows = rows,
                       .first = i * group + first,
                       .stored = count * group,
                       .matrix = matrix});
    }
    return parts;
  }

  void plan_delta_rule() {
    const spec::LinearAttention& linear = model_.linear;
    matrix(Role::kDeltaIn, Role::kDeltaInScale, all_columns(model_.hidden), delta_in_parts());
    add(Role::kDeltaRates,
        spec::compute_dtype(layout_.dtype),
        all_columns(model_.hidden),
        delta_rate_parts());
    add(Role::kDeltaConv,
        spec::DType::kF32,
        all_columns(linear.kernel),
        {whole(name("linear_attn.conv1d.weight"), linear.channels())});
    vector(Role::kDeltaFading, {whole(name("linear_attn.A_log"), linear.value_heads)});
    layout_.tensors.back().logarithm = true;
    vector(Role::kDeltaStepBias, {whole(name("linear_attn.dt_bias"), linear.value_heads)});
    vector(Role::kDeltaNorm, {whole(name("linear_attn.norm.weight"), linear.value_dim)});
    matrix(Role::kOut,
           Role::kOutScale,
           all_columns(linear.values()),
           {whole(name("linear_attn.out_proj.weight"), model_.hidden, Matrix::kOut)});
  }

  /// Where gates are not apart they are by key head: its query, its key, its values, their gates.
  [[nodiscard]] std::vector<Part> delta_in_parts() const {
    const spec::LinearAttention& linear = model_.linear;
    if (linear.gates_apart) {
      return {whole(name("linear_attn.in_proj_qkv.weight"), linear.channels(), Matrix::kQ),
              whole(name("linear_attn.in_proj_z.weight"), linear.values(), Matrix::kK)};
    }
    const std::int64_t key = linear.key_dim;
    const std::int64_t value = linear.values() / linear.key_heads;
    std::vector<Part> parts;
    std::int64_t first = 0;
    for (const std::int64_t rows : {key, key, value, value}) {
      const bool gates = first == 2 * key + value;
      const auto some = slices(name("linear_attn.in_proj_qkvz.weight"),
                               linear.key_heads,
                               2 * (key + value),
                               first,
                               rows,
                               gates ? Matrix::kK : Matrix::kQ);
      parts.insert(parts.end(), some.begin(), some.end());
      first += rows;
    }
    return parts;
  }

  /// Qwen3-Next has b of the value heads of a key head, then their a.
  [[nodiscard]] std::vector<Part> delta_rate_parts() const {
    const spec::LinearAttention& linear = model_.linear;
    if (model_.architecture != spec::Architecture::kQwen3Next) {
      return {whole(name("linear_attn.in_proj_b.weight"), linear.value_heads),
              whole(name("linear_attn.in_proj_a.weight"), linear.value_heads)};
    }
    const std::int64_t own = linear.value_heads / linear.key_heads;
    const std::string stored = name("linear_attn.in_proj_ba.weight");
    std::vector<Part> parts = slices(stored, linear.key_heads, 2 * own, 0, own, Matrix::kQ);
    const auto a = slices(stored, linear.key_heads, 2 * own, own, own, Matrix::kQ);
    parts.insert(parts.end(), a.begin(), a.end());
    return parts;
  }

  /// Gates and ups of the MLP that is called so.
  [[nodiscard]] std::vector<Part> gate_up_parts(std::string_view mlp) const {
    const std::int64_t width = model_.intermediate;
    const auto part_name = [&](std::string_view part) {
      return name(fmt::format("{}.{}", mlp, part));
    };
    if (is_fused()) {
      const std::string fused = part_name("gate_up_proj.weight");
      return {within(fused, width, 0, 2 * width, Matrix::kGate),
              within(fused, width, width, 2 * width, Matrix::kUp)};
    }
    return {divided(part_name("gate_proj.weight"), width, Matrix::kGate),
            divided(part_name("up_proj.weight"), width, Matrix::kUp)};
  }

  /// Checkpoints name the norm before the MLP by what it is behind, unless there is one more.
  [[nodiscard]] std::string mlp_norm_name() const {
    return name(model_.norms == spec::Norms::kAround ? "pre_feedforward_layernorm.weight"
                                                     : "post_attention_layernorm.weight");
  }

  /// What gates or ups of experts are in the image.
  [[nodiscard]] spec::DType expert_dtype(Matrix matrix) const {
    return spec::matrix_dtype(model_, layout_.dtype, matrix, layer_, model_.hidden);
  }

  void plan_experts() {
    const std::int64_t count = model_.experts.count;
    const std::int64_t width = model_.experts.intermediate;
    const ExpertNames names = expert_names(model_);
    const auto part_name = [&](std::int64_t expert, std::string_view part) {
      return name(fmt::format("{}.{}.{}.weight", names.experts, expert, part));
    };
    const spec::DType plain = spec::compute_dtype(layout_.dtype);
    add(Role::kRouter, plain, all_columns(model_.hidden), {whole(name(names.router), count)});
    if (model_.experts.beside) {
      plan_norms_beside();
    } else if (model_.intermediate > 0) {
      add(Role::kSharedGate,
          plain,
          all_columns(model_.hidden),
          {whole(name("mlp.shared_expert_gate.weight"), 1)});
    }
    std::vector<Part> in;
    std::vector<Part> ups;
    std::vector<Part> out;
    const bool alike = expert_dtype(Matrix::kExpertsGate) == expert_dtype(Matrix::kExpertsUp);
    for (std::int64_t expert = 0; expert < count; ++expert) {
      in.push_back(divided(part_name(expert, names.gate), width, Matrix::kExpertsGate));
      (alike ? in : ups).push_back(divided(part_name(expert, names.up), width, Matrix::kExpertsUp));
      out.push_back(whole(part_name(expert, names.down), model_.hidden, Matrix::kExpertsDown));
    }
    in.insert(in.end(), ups.begin(), ups.end());
    plans_apart_ = model_.experts.slots > 0;
    matrix(
        Role::kExpertsGateUp, Role::kExpertsGateUpScale, all_columns(model_.hidden), std::move(in));
    matrix(Role::kExpertsDown, Role::kExpertsDownScale, divided_columns(width), std::move(out));
    plans_apart_ = false;
    if (model_.experts.biased) {
      plan_expert_biases();
    }
  }

  /// Of experts that are beside an MLP.
  void plan_norms_beside() {
    for (const auto& [role, part] :
         {std::pair(Role::kExpertsNorm, "pre_feedforward_layernorm_2.weight"),
          std::pair(Role::kRouterNorm, "router.scale"),
          std::pair(Role::kMlpOwnNorm, "post_feedforward_layernorm_1.weight"),
          std::pair(Role::kExpertsOwnNorm, "post_feedforward_layernorm_2.weight")}) {
      norm(role, name(part), model_.hidden);
    }
    vector(Role::kExpertScales, {whole(name("router.per_expert_scale"), model_.experts.count)});
  }

  void plan_expert_biases() {
    const std::int64_t count = model_.experts.count;
    const ExpertNames names = expert_names(model_);
    const auto part_name = [&](std::int64_t expert, std::string_view part) {
      return name(fmt::format("{}.{}.{}.bias", names.experts, expert, part));
    };
    vector(Role::kRouterBias, {whole(name("mlp.router.bias"), count)});
    std::vector<Part> in;
    std::vector<Part> out;
    for (std::int64_t expert = 0; expert < count; ++expert) {
      in.push_back(divided(part_name(expert, names.gate), model_.experts.intermediate));
      in.push_back(divided(part_name(expert, names.up), model_.experts.intermediate));
      out.push_back(whole(part_name(expert, names.down), model_.hidden));
    }
    vector(Role::kExpertsGateUpBias, std::move(in));
    if (spec::adds_once(model_.shard)) {
      vector(Role::kExpertsDownBias, std::move(out));
    }
  }

  /// The MLP that every token takes, by what it is called.
  void plan_mlp(std::string_view mlp) {
    const std::int64_t width = model_.intermediate;
    const auto part_name = [&](std::string_view part) {
      return name(fmt::format("{}.{}", mlp, part));
    };
    matrix(Role::kGateUp, Role::kGateUpScale, all_columns(model_.hidden), gate_up_parts(mlp));
    if (model_.mlp_bias) {
      vector(
          Role::kGateUpBias,
          {divided(part_name("gate_proj.bias"), width), divided(part_name("up_proj.bias"), width)});
    }
    matrix(Role::kDown,
           Role::kDownScale,
           divided_columns(width),
           {whole(part_name("down_proj.weight"), model_.hidden, Matrix::kDown)});
    if (model_.mlp_bias && spec::adds_once(model_.shard)) {
      vector(Role::kDownBias, {whole(part_name("down_proj.bias"), model_.hidden)});
    }
  }

  /// Parts that are alike are one tensor.
  void matrix(Role role,
              std::optional<Role> scale,
              const Columns& columns,
              std::vector<Part> parts) {
    std::vector<Part> alike;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto dtype = [&](std::size_t at) {
        return spec::matrix_dtype(model_, layout_.dtype, parts[at].matrix, layer_, columns.count);
      };
      alike.push_back(parts[i]);
      if (i + 1 == parts.size() || dtype(i) != dtype(i + 1)) {
        add(role, dtype(i), columns, std::exchange(alike, {}));
      }
    }
    if (scale && layout_.dtype == spec::DType::kI8) {
      const std::int64_t rows = (plans_apart_ ? apart_ : layout_.tensors).back().rows;
      place({.role = *scale, .layer = layer_, .rows = rows, .dtype = spec::DType::kF32});
    }
  }
  void norm(Role role, std::string name, std::int64_t size) {
    vector(role, {whole(std::move(name), size)});
    layout_.tensors.back().less_one = model_.norm_less_one;
  }
  void vector(Role role, std::vector<Part> parts) {
    add(role, spec::DType::kF32, {}, std::move(parts));
  }

  void add(Role role, spec::DType dtype, const Columns& columns, std::vector<Part> parts) {
    ImageTensor tensor{.role = role, .layer = layer_, .columns = columns.count, .dtype = dtype};
    for (Part& part : parts) {
      HEDDLE_CHECK(part.rows > 0);
      tensor.sources.push_back({.name = std::move(part.name),
                                .row = tensor.rows,
                                .rows = part.rows,
                                .first_row = part.first,
                                .first_column = columns.first,
                                .stored_rows = part.stored,
                                .stored_columns = columns.stored});
      tensor.rows += part.rows;
    }
    place(std::move(tensor));
  }

  void place(ImageTensor tensor) {
    if (plans_apart_) {
      apart_.push_back(std::move(tensor));
    } else {
      place_next(std::move(tensor));
    }
  }

  void place_next(ImageTensor tensor) {
    tensor.offset = (end_ + kAlignment - 1) / kAlignment * kAlignment;
    tensor.bytes = spec::matrix_bytes(tensor.dtype, tensor.rows, tensor.columns);
    end_ = tensor.offset + tensor.bytes;
    layout_.tensors.push_back(std::move(tensor));
  }

  void end_stage() { layout_.stage_end.push_back(end_); }

  [[nodiscard]] std::string name(std::string_view part) const {
    return fmt::format("model.layers.{}.{}", layer_, part);
  }

  const spec::ModelSpec& model_;
  ImageLayout layout_{};
  std::vector<ImageTensor> apart_{};  ///< To be placed behind all others.
  bool plans_apart_ = false;
  std::int64_t layer_ = -1;
  std::uint64_t end_ = 0;
};

}  // namespace

ImageLayout plan_image(const spec::ModelSpec& model, spec::DType dtype) {
  HEDDLE_CHECK(dtype == spec::DType::kF32 || dtype == spec::DType::kBf16 ||
               dtype == spec::DType::kI8 || dtype == spec::DType::kStored);
  return Planner(model, dtype).plan();
}

}  // namespace heddle::store
