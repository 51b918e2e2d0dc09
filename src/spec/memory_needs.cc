#include "spec/memory_needs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/units.h"
#include "spec/block_panels.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"
#include "spec/shard.h"

namespace heddle::spec {
namespace {

/// Vectors (norms and biases) are float32 in every image.
struct Elements {
  std::int64_t matrices = 0;     ///< And embeddings.
  std::int64_t matrix_rows = 0;  ///< Of those: as many scales where they are int8.
  std::int64_t vectors = 0;
};

/// What decides which experts a token takes, and how much of the MLP that all share.
std::int64_t router_rows(const ModelSpec& m) {
  const bool shares = m.intermediate > 0 && !m.experts.beside;
  return m.experts.count == 0 ? 0 : m.experts.count + (shares ? 1 : 0);
}

Elements& operator+=(Elements& sum, const Elements& more) {
  sum.matrices += more.matrices;
  sum.matrix_rows += more.matrix_rows;
  sum.vectors += more.vectors;
  return sum;
}

/// Rows of what queries, keys, values and their gates come of.
std::int64_t qkv_rows(const ModelSpec& m, const Heads& heads) {
  return heads.qkv() + (m.attention_gate ? heads.queries() : 0);
}

Elements count_attention(const ModelSpec& m, std::int64_t layer) {
  const Heads heads = heads_of(m, layer);
  const std::int64_t q = heads.queries();
  const std::int64_t qkv = qkv_rows(m, heads);
  Elements sum{.matrices = (qkv + q) * m.hidden, .matrix_rows = qkv + m.hidden};
  sum.vectors += m.qkv_bias ? qkv : 0;
  sum.vectors += m.out_bias && adds_once(m.shard) ? m.hidden : 0;
  sum.vectors += m.qk_norm ? 2 * heads.dim : 0;
  sum.vectors += m.sinks ? m.heads : 0;
  sum.vectors += m.qk_norm_whole ? q + heads.keys() : 0;
  return sum;
}

/// The rates, of two rows for each value head, are never rounded to int8.
Elements count_delta_rule(const LinearAttention& l, std::int64_t hidden) {
  const std::int64_t in = l.channels() + l.values();
  return {.matrices = (in + l.values() + 2 * l.value_heads) * hidden,
          .matrix_rows = in + hidden,
          .vectors = l.channels() * l.kernel + 2 * l.value_heads + l.value_dim};
}

Elements count_feed_forward(const ModelSpec& m) {
  const Experts& e = m.experts;
  const std::int64_t added_once = adds_once(m.shard) ? m.hidden : 0;
  const std::int64_t biases = e.biased ? e.count * (1 + 2 * e.intermediate + added_once) : 0;
  // Norms before experts, of both, and the router's; what experts weigh.
  const std::int64_t beside = e.beside ? 4 * m.hidden + e.count : 0;
  if (is_encoder(m)) {
    return {.matrices = 2 * m.intermediate * m.hidden,
            .matrix_rows = m.intermediate + m.hidden,
            .vectors = 4 * m.hidden + m.intermediate + m.hidden};
  }
  return {.matrices = 3 * (m.intermediate + e.count * e.intermediate) * m.hidden +
                      router_rows(m) * m.hidden,
          .matrix_rows = (m.intermediate > 0 ? m.hidden : 0) + 2 * m.intermediate +
                         e.count * (m.hidden + 2 * e.intermediate),
          .vectors = (m.norms == Norms::kAround ? 4 : 2) * m.hidden + biases + beside +
                     (m.layer_scale ? 1 : 0) + (m.mlp_bias ? 2 * m.intermediate + added_once : 0)};
}

/// Rows of a head that scores; 0 where there is none.
std::int64_t score_rows(const Encoder& encoder, std::int64_t hidden) {
  return !encoder.scores ? 0 : encoder.bare ? 1 : hidden + 1;
}

/// Rows of the tables of positions and types, and of a head that scores: never of int8.
std::int64_t plain_rows(const Encoder& encoder, std::int64_t hidden) {
  return encoder.positions + encoder.types + score_rows(encoder, hidden);
}

/// What an encoder has outside its layers beside the table of words.
Elements count_outside(const ModelSpec& m) {
  return {.matrices = plain_rows(m.encoder, m.hidden) * m.hidden,
          .vectors = 2 * m.hidden + score_rows(m.encoder, m.hidden)};
}

Elements count_elements(const ModelSpec& m) {
  const std::int64_t vocab = leads(m) ? vocab_range(m).size() : 0;
  const std::int64_t head_rows = m.tied_embeddings ? 0 : vocab;
  Elements sum{.matrices = (vocab + head_rows) * m.hidden,
               .matrix_rows = head_rows,
               .vectors = leads(m) && !is_encoder(m) ? m.hidden : 0};
  if (is_encoder(m)) {
    sum += count_outside(m);
  }
  const LayerRange own = own_layers(m);
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    sum += keeps_state(m, layer) ? count_delta_rule(m.linear, m.hidden) : count_attention(m, layer);
    sum += count_feed_forward(m);
  }
  return sum;
}

/// Bytes of embedding, head and the matrices of layers.
std::uint64_t matrices_bytes(const ModelSpec& m, DType image) {
  std::uint64_t bytes = 0;
  const auto add = [&](Matrix matrix, std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    const DType dtype = matrix_dtype(m, image, matrix, layer, columns);
    bytes += static_cast<std::uint64_t>(rows * row_bytes(dtype, columns));
  };
  const std::int64_t vocab = leads(m) ? vocab_range(m).size() : 0;
  add(Matrix::kEmbedding, 0, vocab, m.hidden);
  add(Matrix::kHead, 0, m.tied_embeddings ? 0 : vocab, m.hidden);
  if (is_encoder(m)) {
    bytes += static_cast<std::uint64_t>(plain_rows(m.encoder, m.hidden) * m.hidden) *
             dtype_bytes(compute_dtype(image));
  }
  const LayerRange own = own_layers(m);
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    if (keeps_state(m, layer)) {
      add(Matrix::kQ, layer, m.linear.channels(), m.hidden);
      add(Matrix::kK, layer, m.linear.values(), m.hidden);
      add(Matrix::kOut, layer, m.hidden, m.linear.values());
      bytes += static_cast<std::uint64_t>(2 * m.linear.value_heads * m.hidden) *
               dtype_bytes(compute_dtype(image));
    } else {
      const Heads heads = heads_of(m, layer);
      const std::int64_t q = heads.queries();
      const std::int64_t kv = heads.keys();
      add(Matrix::kQ, layer, m.attention_gate ? 2 * q : q, m.hidden);
      add(Matrix::kK, layer, kv, m.hidden);
      add(Matrix::kV, layer, kv, m.hidden);
      add(Matrix::kOut, layer, m.hidden, q);
    }
    add(Matrix::kGate, layer, is_encoder(m) ? 0 : m.intermediate, m.hidden);
    add(Matrix::kUp, layer, m.intermediate, m.hidden);
    add(Matrix::kDown, layer, m.hidden, m.intermediate);
    add(Matrix::kExpertsGate, layer, m.experts.count * m.experts.intermediate, m.hidden);
    add(Matrix::kExpertsUp, layer, m.experts.count * m.experts.intermediate, m.hidden);
    add(Matrix::kExpertsDown, layer, m.experts.count * m.hidden, m.experts.intermediate);
    bytes +=
        static_cast<std::uint64_t>(router_rows(m) * m.hidden) * dtype_bytes(compute_dtype(image));
  }
  return bytes;
}

/// Of a layer that keeps keys and values, for each token.
std::uint64_t kv_bytes_of(const ModelSpec& model, DType dtype, std::int64_t layer) {
  const Heads heads = heads_of(model, layer);
  return static_cast<std::uint64_t>(2 * heads.kv) *
         kv_row_bytes(kv_dtype(model.kv, dtype), heads.dim);
}

/// Layers that have keys and values of their own: an encoder's have them in turn.
LayerRange kv_layers(const ModelSpec& model) {
  const LayerRange own = own_layers(model);
  return is_encoder(model) ? LayerRange{.begin = own.begin, .end = own.begin + 1} : own;
}

}  // namespace

std::int64_t parameter_count(const ModelSpec& model) {
  const Elements elements = count_elements(model);
  return elements.matrices + elements.vectors;
}

std::int64_t active_parameter_count(const ModelSpec& model) {
  const Experts& e = model.experts;
  const std::int64_t added_once = adds_once(model.shard) ? model.hidden : 0;
  const std::int64_t biases = e.biased ? 2 * e.intermediate + added_once : 0;
  const std::int64_t expert = 3 * e.intermediate * model.hidden + biases;
  const LayerRange own = own_layers(model);
  return parameter_count(model) - (own.end - own.begin) * (e.count - e.active) * expert;
}

std::uint64_t weight_bytes(const ModelSpec& model, DType dtype) {
  const Elements elements = count_elements(model);
  const std::int64_t scales = dtype == DType::kI8 ? elements.matrix_rows : 0;
  return matrices_bytes(model, dtype) +
         static_cast<std::uint64_t>(elements.vectors + scales) * dtype_bytes(DType::kF32);
}

std::uint64_t kv_bytes_per_token(const ModelSpec& model, DType dtype) {
  const LayerRange own = kv_layers(model);
  std::uint64_t bytes = 0;
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    bytes += keeps_state(model, layer) ? 0 : kv_bytes_of(model, dtype, layer);
  }
  return bytes;
}

std::uint64_t state_bytes(const ModelSpec& model) {
  const LinearAttention& linear = model.linear;
  const std::int64_t each = linear.values() * linear.key_dim +
                            std::max<std::int64_t>(linear.kernel - 1, 0) * linear.channels();
  const LayerRange own = own_layers(model);
  std::uint64_t bytes = 0;
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    bytes +=
        keeps_state(model, layer) ? static_cast<std::uint64_t>(each) * dtype_bytes(DType::kF32) : 0;
  }
  return bytes;
}

std::uint64_t kv_bytes(const ModelSpec& model, DType dtype, std::int64_t tokens) {
  HEDDLE_CHECK(tokens >= 0);
  HEDDLE_CHECK(std::cmp_equal(model.window.size(), model.layers));
  std::uint64_t kept = 0;
  const LayerRange own = kv_layers(model);
  for (std::int64_t layer = own.begin; layer < own.end; ++layer) {
    if (keeps_state(model, layer)) {
      continue;
    }
    const std::int64_t window = model.window[static_cast<std::size_t>(layer)];
    kept += static_cast<std::uint64_t>(window > 0 ? std::min(window, tokens) : tokens) *
            kv_bytes_of(model, dtype, layer);
  }
  return kept + (tokens > 0 ? state_bytes(model) : 0);
}

MemoryNeeds memory_needs(const ModelSpec& model, DType dtype) {
  const std::uint64_t weights = weight_bytes(model, dtype);
  const std::int64_t smallest = std::min(kSmallestContext, model.max_position);
  return {.dtype = dtype,
          .weights = weights,
          .kv_per_token = kv_bytes_per_token(model, dtype),
          .state = state_bytes(model),
          .smallest = weights + kv_bytes(model, dtype, smallest),
          .one_context = weights + kv_bytes(model, dtype, model.max_position)};
}

std::string describe(const MemoryNeeds& needs) {
  return fmt::format("{}: weights {}, at least {} to serve, {} with a full context",
                     dtype_name(needs.dtype),
                     format_bytes(needs.weights),
                     format_bytes(needs.smallest),
                     format_bytes(needs.one_context));
}

}  // namespace heddle::spec
