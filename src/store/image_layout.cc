#include "store/image_layout.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kAlignment = 64;  // A cache line, and the widest vector load.

/// Appends tensors one behind the other.
class Planner {
 public:
  Planner(const spec::ModelSpec& model, spec::DType dtype) : model_(model) {
    layout_.dtype = dtype;
  }

  ImageLayout plan() && {
    add(Role::kEmbedding,
        spec::compute_dtype(layout_.dtype),
        model_.hidden,
        {{"model.embed_tokens.weight", model_.vocab}});
    end_stage();
    for (layer_ = 0; layer_ < model_.layers; ++layer_) {
      plan_attention();
      plan_mlp();
      end_stage();
    }
    layer_ = -1;
    vector(Role::kFinalNorm, {{"model.norm.weight", model_.hidden}});
    if (!model_.tied_embeddings) {
      matrix(Role::kHead, Role::kHeadScale, model_.hidden, {{"lm_head.weight", model_.vocab}});
    }
    end_stage();
    layout_.bytes = end_;
    return std::move(layout_);
  }

 private:
  /// A checkpoint tensor and its rows.
  struct Part {
    std::string name;
    std::int64_t rows;
  };

  void plan_attention() {
    const std::int64_t q = model_.heads * model_.head_dim;
    const std::int64_t kv = model_.kv_heads * model_.head_dim;
    vector(Role::kInputNorm, {{name("input_layernorm.weight"), model_.hidden}});
    matrix(Role::kQkv,
           Role::kQkvScale,
           model_.hidden,
           {{name("self_attn.q_proj.weight"), q},
            {name("self_attn.k_proj.weight"), kv},
            {name("self_attn.v_proj.weight"), kv}});
    if (model_.qkv_bias) {
      vector(Role::kQkvBias,
             {{name("self_attn.q_proj.bias"), q},
              {name("self_attn.k_proj.bias"), kv},
              {name("self_attn.v_proj.bias"), kv}});
    }
    if (model_.qk_norm) {
      vector(Role::kQNorm, {{name("self_attn.q_norm.weight"), model_.head_dim}});
      vector(Role::kKNorm, {{name("self_attn.k_norm.weight"), model_.head_dim}});
    }
    matrix(Role::kOut, Role::kOutScale, q, {{name("self_attn.o_proj.weight"), model_.hidden}});
    if (model_.out_bias) {
      vector(Role::kOutBias, {{name("self_attn.o_proj.bias"), model_.hidden}});
    }
  }

  void plan_mlp() {
    const std::int64_t width = model_.intermediate;
    vector(Role::kPostNorm, {{name("post_attention_layernorm.weight"), model_.hidden}});
    matrix(Role::kGateUp,
           Role::kGateUpScale,
           model_.hidden,
           {{name("mlp.gate_proj.weight"), width}, {name("mlp.up_proj.weight"), width}});
    if (model_.mlp_bias) {
      vector(Role::kGateUpBias,
             {{name("mlp.gate_proj.bias"), width}, {name("mlp.up_proj.bias"), width}});
    }
    matrix(Role::kDown, Role::kDownScale, width, {{name("mlp.down_proj.weight"), model_.hidden}});
    if (model_.mlp_bias) {
      vector(Role::kDownBias, {{name("mlp.down_proj.bias"), model_.hidden}});
    }
  }

  void matrix(Role role, Role scale, std::int64_t columns, std::vector<Part> parts) {
    add(role, layout_.dtype, columns, std::move(parts));
    if (layout_.dtype == spec::DType::kI8) {
      const std::int64_t rows = layout_.tensors.back().rows;
      place({.role = scale, .layer = layer_, .rows = rows, .dtype = spec::DType::kF32});
    }
  }
  void vector(Role role, std::vector<Part> parts) {
    add(role, spec::DType::kF32, 1, std::move(parts));
  }

  void add(Role role, spec::DType dtype, std::int64_t columns, std::vector<Part> parts) {
    ImageTensor tensor{.role = role, .layer = layer_, .columns = columns, .dtype = dtype};
    for (Part& part : parts) {
      HEDDLE_CHECK(part.rows > 0);
      tensor.sources.push_back(
          {.name = std::move(part.name), .row = tensor.rows, .rows = part.rows});
      tensor.rows += part.rows;
    }
    place(std::move(tensor));
  }

  void place(ImageTensor tensor) {
    tensor.offset = (end_ + kAlignment - 1) / kAlignment * kAlignment;
    tensor.bytes =
        static_cast<std::uint64_t>(tensor.rows * tensor.columns) * spec::dtype_bytes(tensor.dtype);
    end_ = tensor.offset + tensor.bytes;
    layout_.tensors.push_back(std::move(tensor));
  }

  void end_stage() { layout_.stage_end.push_back(end_); }

  [[nodiscard]] std::string name(std::string_view part) const {
    return fmt::format("model.layers.{}.{}", layer_, part);
  }

  const spec::ModelSpec& model_;
  ImageLayout layout_{};
  std::int64_t layer_ = -1;
  std::uint64_t end_ = 0;
};

}  // namespace

ImageLayout plan_image(const spec::ModelSpec& model, spec::DType dtype) {
  HEDDLE_CHECK(dtype == spec::DType::kF32 || dtype == spec::DType::kBf16 ||
               dtype == spec::DType::kI8);
  return Planner(model, dtype).plan();
}

}  // namespace heddle::store
