#include "engine/decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/linear_parts.h"
#include "ops/add_norm.h"
#include "ops/attention.h"
#include "ops/exchange.h"
#include "ops/fused.h"
#include "ops/gated_delta.h"
#include "ops/gather_rows.h"
#include "ops/gelu_mul.h"
#include "ops/linear.h"
#include "ops/rescale.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/sigmoid_mul.h"
#include "ops/silu_mul.h"
#include "ops/wait.h"
#include "spec/operations.h"
#include "spec/shard.h"

namespace heddle::engine {
using ops::heads_of;

namespace {

std::size_t index(std::int64_t layer) {
  return static_cast<std::size_t>(layer);
}

}  // namespace

Result<Decoder> Decoder::create(const spec::ModelSpec& model,
                                const store::ImageLayout& layout,
                                const std::byte* window,
                                const std::atomic<std::uint64_t>& ready,
                                KvPlan kv,
                                std::byte* kv_base) {
  for (const spec::Heads& heads : spec::kinds_of_heads(model)) {
    if (heads.dim > ops::kAttentionHeadDimMax) {
      return Error{Code::kInvalidArgument,
                   "run a model with head_dim " + std::to_string(heads.dim) +
                       ": attention takes at most " + std::to_string(ops::kAttentionHeadDimMax)};
    }
  }
  const spec::LinearAttention& linear = model.linear;
  if (std::max(linear.key_dim, linear.value_dim) > ops::kDeltaDimMax ||
      linear.kernel > ops::kDeltaKernelMax) {
    return Error{Code::kInvalidArgument,
                 "run a model with linear attention of heads of " + std::to_string(linear.key_dim) +
                     " and " + std::to_string(linear.value_dim) + ", convolved over " +
                     std::to_string(linear.kernel) + ": at most " +
                     std::to_string(ops::kDeltaDimMax) + " over " +
                     std::to_string(ops::kDeltaKernelMax)};
  }
  auto weights = bind_weights(model, layout, window);
  if (!weights) {
    return weights.error();
  }
  if (layout.stage_end.size() != static_cast<std::size_t>(model.layers) + 2) {
    return Error{Code::kCorrupt,
                 "bind weights: a model of " + std::to_string(model.layers) +
                     " layers has 2 stages more, the image has " +
                     std::to_string(layout.stage_end.size())};
  }
  Decoder decoder;
  decoder.model_ = model;
  decoder.weights_ = std::move(*weights);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const spec::LayerRope rope = spec::rope_of(model, layer);
    if (decoder.rope(rope) == nullptr) {
      decoder.ropes_[index_of(rope)] = std::make_unique<RopeTable>(rope_frequencies(model, rope));
    }
  }
  decoder.stage_end_ = layout.stage_end;
  decoder.ready_ = &ready;
  decoder.kv_ = std::move(kv);
  decoder.dtype_ = spec::compute_dtype(layout.dtype);
  decoder.kv_base_ = kv_base;
  for (std::int64_t rank = 0; rank < model.shard.ranks; ++rank) {
    decoder.vocab_ends_.push_back(spec::vocab_range(model, rank).end);
  }
  return decoder;
}

void Decoder::join(collective::Collective& group, const ops::PeerArea* peers) {
  HEDDLE_CHECK(group.rank() == model_.shard.rank && group.size() == model_.shard.ranks);
  group_ = &group;
  peers_ = peers;
}

bool Decoder::whole() const {
  const std::uint64_t ready = ready_->load(std::memory_order_acquire);
  return ready != ops::kAbandoned && ready >= stage_end_.back();
}

void Decoder::wait_for_stage(ops::OpContext& context, std::int64_t stage) const {
  ops::wait(context, {.watermark = ready_, .value = stage_end_[static_cast<std::size_t>(stage)]});
}

void Decoder::embed(ops::OpContext& context, ops::ConstTensorRef ids, ops::TensorRef hidden) const {
  wait_for_stage(context, 0);
  ops::gather_rows(context,
                   {.table = weights_.embedding,
                    .rows = ids,
                    .first = spec::vocab_range(model_).begin,
                    .out = hidden});
  sum_over_ranks(context, hidden);  // Of which one has the token, and the others have zeros.
  if (model_.scales.embedding != 1.0) {
    const auto factor = static_cast<float>(model_.scales.embedding);
    ops::rescale(context, {.x = hidden, .factor = factor, .out = hidden});
  }
}

/// What goes into attention or an MLP: the norm of the hidden states, or these where there is none.
void Decoder::norm_into(ops::OpContext& context,
                        const ops::ConstTensorRef& weight,
                        const ops::TensorRef& hidden,
                        const ops::TensorRef& normed) const {
  if (weight.present()) {
    const auto eps = static_cast<float>(model_.rms_eps);
    ops::rms_norm(context, {.x = hidden, .weight = weight, .out = normed, .eps = eps});
  } else {
    ops::rescale(context, {.x = hidden, .out = normed});
  }
}

/// Adds what attention or an MLP gave apart from the hidden states. `next` is what is handed on of
/// those, normalised by `next_norm` where that is present; or absent.
void Decoder::add_branch(ops::OpContext& context,
                         const ops::ConstTensorRef& norm,
                         const ops::TensorRef& branch,
                         const ops::TensorRef& hidden,
                         const ops::ConstTensorRef& next_norm,
                         const ops::TensorRef& next) const {
  sum_over_ranks(context, branch);
  ops::add_norm(context,
                {.x = branch,
                 .weight = norm,
                 .eps = static_cast<float>(model_.rms_eps),
                 .factor = static_cast<float>(model_.scales.residual),
                 .sum = hidden,
                 .next_weight = next_norm,
                 .next = next});
}

/// What a projection into the hidden states is added to: on one rank the hidden states, which are
/// in the sum over the ranks then.
ops::ConstTensorRef Decoder::residual(const ops::TensorRef& hidden) const {
  return spec::adds_once(model_.shard) ? ops::ConstTensorRef(hidden) : ops::ConstTensorRef{};
}

void Decoder::sum_over_ranks(ops::OpContext& context, const ops::TensorRef& hidden) const {
  if (model_.shard.ranks > 1) {
    ops::all_reduce(context, {.group = group_, .data = hidden, .peers = peers_});
  }
}

void Decoder::run_layers(ops::OpContext& context,
                         LayerRange range,
                         const Batch& batch,
                         const Activations& activations) const {
  HEDDLE_CHECK(kv_.range.contains(range));
  HEDDLE_CHECK(batch.block_tables.size() == kv_.groups.size());
  if (spec::is_encoder(model_)) {
    HEDDLE_CHECK(range == kv_.range && !batch.resumes);
    encode(context, batch, activations);
    return;
  }
  // A norm of the hidden states follows what was added to them in one launch, where there is one.
  const bool ahead = whole() && model_.norms != spec::Norms::kAfter && !model_.layer_scale;
  const auto hidden = Activations::rows(activations.hidden, batch.tokens);
  const auto normed = Activations::rows(activations.normed, batch.tokens);
  bool is_normed = false;
  if (batch.resumes && spec::has_states(model_)) {
    // A pass that gave up within the image would leave some states behind its tokens.
    wait_for_stage(context, 1 + model_.layers);
  }
  for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
    wait_for_stage(context, 1 + layer);
    if (!is_normed) {
      norm_into(context, weights_.layers[index(layer)].input_norm, hidden, normed);
    }
    if (spec::keeps_state(model_, layer)) {
      update_states(context, layer, batch, activations);
    } else {
      attend(context, layer, batch, activations);
    }
    // The next layer's norm may not be there before that layer is.
    is_normed = ahead && layer + 1 < range.end;
    feed_forward(context,
                 layer,
                 batch,
                 activations,
                 is_normed ? weights_.layers[index(layer + 1)].input_norm : ops::ConstTensorRef{});
    if (model_.layer_scale) {
      const ops::ConstTensorRef& by = weights_.layers[index(layer)].layer_scale;
      ops::rescale(context, {.x = hidden, .by = by, .out = hidden});
    }
  }
}

ops::RmsNormArgs Decoder::norm_of(const ops::TensorRef& hidden,
                                  const ops::ConstTensorRef& weight,
                                  const ops::TensorRef& out) const {
  return {.x = hidden, .weight = weight, .out = out, .eps = static_cast<float>(model_.rms_eps)};
}

/// A product that is added to the hidden states, over all ranks; what comes of it is normalised by
/// `norm` where that is present.
void Decoder::add_product(ops::OpContext& context,
                          const ops::LinearArgs& product,
                          const ops::ConstTensorRef& norm,
                          const ops::TensorRef& normed) const {
  const ops::RmsNormArgs then = norm_of(product.out, norm, normed);
  if (norm.present() && model_.shard.ranks == 1) {
    ops::linear_norm(context, {.linear = product, .norm = then});
    return;
  }
  ops::linear(context, product);
  sum_over_ranks(context, product.out);
  if (norm.present()) {
    ops::rms_norm(context, then);
  }
}

/// The projections of a batch as they are handed on: `rows` themselves, or in half as many bytes
/// where the device would rather have that. A host that attends for guests takes floats, and a bias
/// is added to floats.
ops::TensorRef Decoder::projected(const ops::OpContext& context,
                                  const Batch& batch,
                                  const ops::ConstTensorRef& bias,
                                  const ops::TensorRef& normed,
                                  ops::TensorRef rows) const {
  const std::int64_t from = context.kernels.narrow_from;
  if (from > 0 && batch.tokens >= from && batch.guests.sequences == 0 && !bias.present() &&
      normed.dtype == spec::DType::kBf16 && kv_.dtype != spec::DType::kF32) {
    rows.dtype = spec::DType::kBf16;
  }
  return rows;
}

/// Where the KV of a layer is, by one of the tables of its group.
ops::PagedKv Decoder::paged_kv(std::int64_t layer, ops::ConstTensorRef table) const {
  const KvPlan::Place& place = kv_.place(layer);
  const memory::KvGeometry& geometry = kv_.groups[place.group].geometry;
  const spec::Heads heads = spec::heads_of(model_, layer);
  const auto key_offset = place.layer_in_group * static_cast<std::int64_t>(geometry.layer_stride());
  return {.base = kv_base_,
          .block_bytes = static_cast<std::int64_t>(geometry.block_bytes),
          .block_tokens = geometry.block_tokens,
          .key_offset = key_offset,
          .value_offset = key_offset + static_cast<std::int64_t>(geometry.value_offset()),
          .kv_heads = heads.kv,
          .head_dim = heads.dim,
          .dtype = kv_.dtype,
          .table = table};
}

namespace {

/// Sequences [first, first + count) of a batch and their table; tokens keep their rows.
ops::AttentionArgs sequences_of(const ops::AttentionArgs& all,
                                std::int64_t first,
                                std::int64_t count,
                                const ops::ConstTensorRef& table) {
  const auto part = [first](ops::ConstTensorRef vector, std::int64_t size) {
    vector.data += first * static_cast<std::int64_t>(sizeof(std::int32_t));
    vector.shape[0] = size;
    return vector;
  };
  ops::AttentionArgs some = all;
  some.rows = {.begin = part(all.rows.begin, count + 1),
               .first_position = part(all.rows.first_position, count)};
  some.kv.table = table;
  return some;
}

}  // namespace

/// Attention where the last sequences have their first positions with a host. While it computes
/// those, the others are computed here.
void Decoder::attend_with_guests(ops::OpContext& context,
                                 std::int64_t layer,
                                 const Batch& batch,
                                 const ops::AttentionArgs& all,
                                 const Activations& activations) const {
  const Batch::Guests& guests = batch.guests;
  const std::int64_t others = batch.rows.sequences() - guests.sequences;
  const spec::Heads heads = spec::heads_of(model_, layer);
  const auto states = heads_of(
      Activations::rows_of(activations.states, batch.tokens, heads.query * (heads.dim + 2)),
      0,
      heads.query,
      heads.dim + 2);
  const std::size_t group = kv_.place(layer).group;
  ops::GuestAttentionArgs away{
      .host = guests.host,
      .layer = layer,
      .attention = sequences_of(all, others, guests.sequences, guests.block_tables[group])};
  away.attention.kv.base = guests.base;
  away.attention.out = {};
  away.attention.parts = {.end = guests.border, .left = states};
  ops::post_guest_attention(context, away);
  ops::ConstTensorRef table = all.kv.table;
  if (others > 0) {
    table.shape[0] = others;
    ops::attention(context, sequences_of(all, 0, others, table));
  }
  ops::await_guest_attention(context, away);
  table = all.kv.table;
  table.data += others * table.stride[0] * static_cast<std::int64_t>(sizeof(std::int32_t));
  table.shape[0] = guests.sequences;
  ops::AttentionArgs home = sequences_of(all, others, guests.sequences, table);
  home.parts = {.begin = guests.border, .resumed = states};
  ops::attention(context, home);
}

/// The norms of queries and keys: of each head, or of all heads of a token at once.
void Decoder::norm_heads(ops::OpContext& context,
                         const LayerWeights& w,
                         const spec::Heads& heads,
                         const ops::TensorRef& qkv) const {
  const auto eps = static_cast<float>(model_.rms_eps);
  const std::int64_t q = heads.queries();
  const bool whole = model_.qk_norm_whole;
  const auto query = whole ? ops::columns_of(qkv, 0, q) : heads_of(qkv, 0, heads.query, heads.dim);
  const auto key =
      whole ? ops::columns_of(qkv, q, heads.keys()) : heads_of(qkv, q, heads.kv, heads.dim);
  ops::rms_norm(context, {.x = query, .weight = w.q_norm, .out = query, .eps = eps});
  ops::rms_norm(context, {.x = key, .weight = w.k_norm, .out = key, .eps = eps});
}

/// normed = norm(hidden += out(attention(rope(qk_norm(qkv(normed)))))), or of a gated attention
/// out(sigmoid(gate(normed)) attention(...))
void Decoder::attend(ops::OpContext& context,
                     std::int64_t layer,
                     const Batch& batch,
                     const Activations& activations) const {
  const LayerWeights& w = weights_.layers[index(layer)];
  const spec::Heads heads = spec::heads_of(model_, layer);
  const std::int64_t d = heads.dim;
  const std::int64_t q = heads.queries();
  const auto normed = Activations::rows(activations.normed, batch.tokens);
  auto qkv = Activations::rows_of(
      activations.qkv, batch.tokens, heads.qkv() + (model_.attention_gate ? q : 0));
  if (!model_.qk_norm_whole && !model_.value_norm) {  // Those norms take floats.
    qkv = projected(context, batch, w.qkv_bias, normed, qkv);
  }
  const auto mixed = Activations::rows_of(activations.mixed, batch.tokens, q);
  const auto query = heads_of(qkv, 0, heads.query, d);
  const auto key = heads_of(qkv, q, heads.kv, d);
  const auto value = heads_of(qkv, q + heads.keys(), heads.kv, d);

  linear_parts(context, w.qkv, {.x = normed, .scale = w.qkv_scale, .bias = w.qkv_bias, .out = qkv});
  add_adapters(context, batch, layer, store::AdapterTarget::kQkv, normed, qkv, activations);
  const bool norm_inside =
      w.q_norm.present() && !model_.qk_norm_whole && context.kernels.rope_normalises;
  if (w.q_norm.present() && !norm_inside) {
    norm_heads(context, w, heads, qkv);
  }
  if (model_.value_norm) {
    const auto eps = static_cast<float>(model_.rms_eps);
    ops::rms_norm(context, {.x = value, .out = value, .eps = eps});
  }
  const std::size_t group = kv_.place(layer).group;
  const ops::PagedKv kv = paged_kv(layer, batch.block_tables[group]);
  ops::RopeAppendArgs append{.rows = batch.rows,
                             .cos_sin = batch.cos_sin[index_of(spec::rope_of(model_, layer))],
                             .query = query,
                             .key = key,
                             .value = value,
                             .kv = kv,
                             .query_norm = norm_inside ? w.q_norm : ops::ConstTensorRef{},
                             .key_norm = norm_inside ? w.k_norm : ops::ConstTensorRef{},
                             .eps = static_cast<float>(model_.rms_eps)};
  ops::AttentionArgs attention{.rows = batch.rows,
                               .query = query,
                               .kv = kv,
                               .window = kv_.groups[group].window,
                               .causal = !spec::is_encoder(model_),
                               .scale = spec::attention_scale(model_),
                               .soft_cap = static_cast<float>(model_.scales.attention_cap),
                               .sinks = w.sinks,
                               .out = heads_of(mixed, 0, heads.query, d)};
  attention.turn = {.cos_sin = append.cos_sin, .norm = append.query_norm, .eps = append.eps};
  if (ops::attention_turns(context, attention)) {
    append.query = {};
    append.query_norm = {};
  } else {
    attention.turn = {};
  }
  ops::rope_append(context, append);
  if (batch.guests.sequences > 0 && attention.window == 0) {
    attend_with_guests(context, layer, batch, attention, activations);
  } else {
    ops::attention(context, attention);
  }
  if (model_.attention_gate) {
    ops::sigmoid_mul(context, {.gate = ops::columns_of(qkv, heads.qkv(), q), .rows = mixed});
  }
  add_mixed(context, layer, batch, mixed, activations);
}

/// normed = norm(hidden += out(mixed)), `mixed` being what attention gave.
void Decoder::add_mixed(ops::OpContext& context,
                        std::int64_t layer,
                        const Batch& batch,
                        const ops::TensorRef& mixed,
                        const Activations& activations) const {
  const LayerWeights& w = weights_.layers[index(layer)];
  const auto hidden = Activations::rows(activations.hidden, batch.tokens);
  const auto normed = Activations::rows(activations.normed, batch.tokens);
  const auto target = store::AdapterTarget::kOut;
  ops::LinearArgs product{.x = mixed, .weight = w.out, .scale = w.out_scale, .bias = w.out_bias};
  if (spec::is_encoder(model_)) {
    add_and_norm(context, batch, product, w.attention_norm, w.attention_norm_bias, activations);
    return;
  }
  if (adds_apart(model_)) {
    product.out = Activations::rows(activations.branch, batch.tokens);
    ops::linear(context, product);
    add_adapters(context, batch, layer, target, mixed, product.out, activations);
    add_branch(context, w.attention_norm, product.out, hidden, w.post_norm, normed);
    return;
  }
  // Before the product, as the norm may follow that in one launch.
  add_adapters(context, batch, layer, target, mixed, hidden, activations);
  product.residual = residual(hidden);
  product.out = hidden;
  add_product(context, product, w.post_norm, normed);
}

/// gated = activation(gate(normed)) * up(normed); of an MLP that all tokens share beside experts,
/// as much of it as each takes.
void Decoder::gate(ops::OpContext& context,
                   std::int64_t layer,
                   const Batch& batch,
                   const Activations& activations) const {
  const LayerWeights& w = weights_.layers[index(layer)];
  const std::int64_t tokens = batch.tokens;
  const auto normed = Activations::rows(activations.normed, tokens);
  const auto gated = Activations::rows(activations.gated, tokens);
  const bool shared = w.shared_gate.present();
  const bool plain = !shared && model_.activation != spec::Activation::kGeluTanh;
  auto gate_up = Activations::rows(activations.gate_up, tokens);
  if (!shared) {
    gate_up = projected(context, batch, w.gate_up_bias, normed, gate_up);
  }
  const ops::LinearArgs product{
      .x = normed, .scale = w.gate_up_scale, .bias = w.gate_up_bias, .out = gate_up};
  const bool adapted = (batch.adapter_targets & bit_of(store::AdapterTarget::kGateUp)) != 0;
  if (plain && w.gate_up.size() == 1 && !adapted) {
    ops::LinearSiluArgs both{.linear = product, .out = gated};
    both.linear.weight = w.gate_up.front();
    ops::linear_silu(context, both);
    return;
  }
  linear_parts(context, w.gate_up, product);
  add_adapters(context, batch, layer, store::AdapterTarget::kGateUp, normed, gate_up, activations);
  if (shared) {
    const auto share = Activations::rows(activations.shared_gate, tokens);
    ops::linear(context, {.x = normed, .weight = w.shared_gate, .out = share});
    ops::share_rows(context,
                    {.gate = share,
                     .rows = ops::columns_of(gate_up, model_.intermediate, model_.intermediate)});
  }
  if (model_.activation == spec::Activation::kGeluTanh) {
    ops::gelu_mul(context, {.gate_up = gate_up, .out = gated});
  } else {
    ops::silu_mul(context, {.gate_up = gate_up, .out = gated});
  }
}

/// hidden += down(activation(gate(normed)) * up(normed)); with experts likewise for each, and of
/// the MLP that all tokens share as much as each takes. What comes of it is normalised by `norm`
/// where that is present.
void Decoder::feed_forward(ops::OpContext& context,
                           std::int64_t layer,
                           const Batch& batch,
                           const Activations& activations,
                           const ops::ConstTensorRef& norm) const {
  const LayerWeights& w = weights_.layers[index(layer)];
  const std::int64_t tokens = batch.tokens;
  const auto hidden = Activations::rows(activations.hidden, tokens);
  const auto normed = Activations::rows(activations.normed, tokens);
  const bool experts = model_.experts.count > 0;
  if (model_.experts.beside) {
    feed_forward_beside(context, layer, batch, activations, norm);
    return;
  }
  if (experts) {
    choose_experts(context, layer, tokens, activations);
    take_experts(context, layer, tokens, activations, residual(hidden), hidden);
  }
  if (model_.intermediate > 0) {
    gate(context, layer, batch, activations);
    const auto gated = Activations::rows(activations.gated, tokens);
    const auto target = store::AdapterTarget::kDown;
    ops::LinearArgs product{
        .x = gated, .weight = w.down, .scale = w.down_scale, .bias = w.down_bias};
    if (adds_apart(model_)) {
      product.out = Activations::rows(activations.branch, tokens);
      ops::linear(context, product);
      add_adapters(context, batch, layer, target, gated, product.out, activations);
      const ops::TensorRef next = norm.present() ? normed : ops::TensorRef{};
      add_branch(context, w.mlp_norm, product.out, hidden, norm, next);
      return;
    }
    add_adapters(context, batch, layer, target, gated, hidden, activations);
    // What the experts gave is in `hidden`, of every rank its part.
    product.residual = experts ? ops::ConstTensorRef(hidden) : residual(hidden);
    product.out = hidden;
    add_product(context, product, norm, normed);
    return;
  }
  sum_over_ranks(context, hidden);
  if (norm.present()) {
    ops::rms_norm(context, norm_of(hidden, norm, normed));
  }
}

void Decoder::pick_normed(ops::OpContext& context,
                          ops::ConstTensorRef picks,
                          const Activations& activations,
                          ops::TensorRef out) const {
  wait_for_stage(context, 1 + model_.layers);
  const auto picked = Activations::rows(activations.picked, picks.shape[0]);
  ops::gather_rows(context, {.table = activations.hidden, .rows = picks, .out = picked});
  ops::rms_norm(context,
                {.x = picked,
                 .weight = weights_.final_norm,
                 .out = out,
                 .eps = static_cast<float>(model_.rms_eps)});
}

ops::TensorRef Decoder::final_hidden(ops::OpContext& context,
                                     ops::ConstTensorRef picks,
                                     const Activations& activations) const {
  if (spec::is_encoder(model_)) {
    return pick_encoded(context, picks, activations);
  }
  const auto states = Activations::rows(activations.picked, picks.shape[0]);
  pick_normed(context, picks, activations, states);
  return states;
}

ops::TensorRef Decoder::logits(ops::OpContext& context,
                               ops::ConstTensorRef picks,
                               const Activations& activations) const {
  const spec::VocabRange own = spec::vocab_range(model_);
  const auto states = Activations::rows(activations.head_in, picks.shape[0]);
  pick_normed(context, picks, activations, states);
  const auto logits = Activations::rows(activations.logits, picks.shape[0]);
  ops::linear(context,
              {.x = states,
               .weight = weights_.head,
               .scale = weights_.head_scale,
               .out = ops::columns_of(logits, own.begin, own.size())});
  if (model_.shard.ranks > 1) {
    ops::all_gather(context,
                    {.group = group_, .data = logits, .ends = &vocab_ends_, .peers = peers_});
  }
  if (model_.scales.logits != 1.0 || model_.scales.logit_cap > 0) {
    ops::rescale(context,
                 {.x = logits,
                  .factor = static_cast<float>(model_.scales.logits),
                  .cap = static_cast<float>(model_.scales.logit_cap),
                  .out = logits});
  }
  return logits;
}

}  // namespace heddle::engine
