#include "engine/activations.h"

#include <algorithm>

#include "base/check.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// Hands out pieces of a range of memory, one after the other.
class Layout {
 public:
  explicit Layout(std::byte* memory) : memory_(memory) {}

  ops::TensorRef take(std::int64_t rows,
                      std::int64_t columns,
                      spec::DType dtype = spec::DType::kF32) {
    std::byte* place = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(rows * columns) * spec::dtype_bytes(dtype) + 63) / 64 * 64;
    most_ = std::max(most_, used_);
    return ops::tensor_2d(place, dtype, rows, columns);
  }

  [[nodiscard]] std::size_t used() const { return used_; }
  void rewind(std::size_t used) { used_ = used; }
  [[nodiscard]] std::size_t most() const { return most_; }
  /// How many rows fit behind what is used, in no more than most(): pieces of `row_bytes` a row in
  /// all, as so many pieces.
  [[nodiscard]] std::int64_t rows_left(std::size_t row_bytes, std::size_t pieces) const {
    const std::size_t left = most_ - used_;
    const std::size_t padding = 64 * pieces;
    return static_cast<std::int64_t>(left > padding ? (left - padding) / row_bytes : 0);
  }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
  std::size_t most_ = 0;
};

Activations place(const spec::ModelSpec& model,
                  spec::DType dtype,
                  std::int64_t tokens,
                  Layout& layout) {
  Activations a;
  a.hidden = layout.take(tokens, model.hidden);
  const std::size_t kept = layout.used();
  // Attention, the MLP and the head take turns.
  a.normed = layout.take(tokens, model.hidden, dtype);
  if (adds_apart(model)) {
    a.branch = layout.take(tokens, model.hidden);
  }
  const std::size_t shared = layout.used();
  std::int64_t qkv = 0;
  std::int64_t widest = 0;
  for (const spec::Heads& heads : spec::kinds_of_heads(model)) {
    qkv = std::max(qkv, heads.qkv() + (model.attention_gate ? heads.queries() : 0));
    widest = std::max(widest, heads.dim);
  }
  a.qkv = layout.take(tokens, qkv);
  a.mixed = layout.take(tokens, model.heads * widest, dtype);
  a.states = layout.take(tokens, model.heads * (widest + 2));
  layout.rewind(shared);
  if (const spec::LinearAttention& linear = model.linear; linear.key_heads > 0) {
    a.delta_in = layout.take(tokens, linear.channels() + linear.values());
    a.delta_rates = layout.take(tokens, 2 * linear.value_heads);
    a.delta_out = layout.take(tokens, linear.values(), dtype);
    layout.rewind(shared);
  }
  a.gate_up = layout.take(tokens, spec::gate_up_rows(model));
  a.gated = layout.take(tokens, model.intermediate, dtype);
  if (const spec::Experts& experts = model.experts; experts.count > 0) {
    a.router = layout.take(tokens, experts.count);
    a.chosen = layout.take(tokens, experts.active, spec::DType::kI32);
    a.expert_weights = layout.take(tokens, experts.active);
    a.shared_gate = layout.take(tokens, 1);
    a.expert_rows = layout.take(tokens, model.hidden, dtype);
    a.expert_in = layout.take(tokens, 2 * experts.intermediate);
    a.expert_gated = layout.take(tokens, experts.intermediate, dtype);
    a.expert_product = layout.take(tokens, model.hidden);
    a.experts_branch = layout.take(tokens, experts.beside ? model.hidden : 0);
  }
  layout.rewind(kept);
  if (spec::is_encoder(model)) {
    a.picked = layout.take(tokens, model.hidden);
    a.head_in = layout.take(tokens, model.hidden, dtype);
    // The first product of the head, where it scores.
    a.logits = layout.take(tokens, model.encoder.scores ? model.hidden : 0);
    return a;
  }
  a.told = layout.take(kLogitRowsMin, model.vocab);
  const auto hidden = static_cast<std::size_t>(model.hidden);
  const std::size_t row_bytes = hidden * (sizeof(float) + spec::dtype_bytes(dtype)) +
                                static_cast<std::size_t>(model.vocab) * sizeof(float);
  const std::int64_t rows =
      std::max(kLogitRowsMin, std::min(tokens, layout.rows_left(row_bytes, 3)));
  a.picked = layout.take(rows, model.hidden);
  a.head_in = layout.take(rows, model.hidden, dtype);
  a.logits = layout.take(rows, model.vocab);
  return a;
}

}  // namespace

bool adds_apart(const spec::ModelSpec& model) {
  return model.norms != spec::Norms::kBefore || model.scales.residual != 1.0;
}

ops::TensorRef Activations::rows(const ops::TensorRef& tensor, std::int64_t tokens) {
  HEDDLE_CHECK(tokens <= tensor.shape[0]);
  ops::TensorRef part = tensor;
  part.shape[0] = tokens;
  return part;
}

ops::TensorRef Activations::rows_of(const ops::TensorRef& tensor,
                                    std::int64_t tokens,
                                    std::int64_t columns) {
  HEDDLE_CHECK(columns <= tensor.shape[1]);
  ops::TensorRef part = rows(tensor, tokens);
  part.shape[1] = part.stride[0] = columns;
  return part;
}

Activations place_activations(const spec::ModelSpec& model,
                              spec::DType weights,
                              std::int64_t tokens,
                              std::byte* memory) {
  Layout layout(memory);
  return place(model, spec::compute_dtype(weights), tokens, layout);
}

std::size_t activation_bytes(const spec::ModelSpec& model,
                             spec::DType weights,
                             std::int64_t tokens) {
  Layout layout(nullptr);
  (void)place(model, spec::compute_dtype(weights), tokens, layout);  // Only its size is wanted.
  return layout.most();
}

}  // namespace heddle::engine
