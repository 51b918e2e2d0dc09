#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "engine/activations.h"
#include "engine/adapters.h"
#include "engine/kv_plan.h"
#include "engine/layer_range.h"
#include "engine/rope_frequencies.h"
#include "engine/weights.h"
#include "ops/context.h"
#include "ops/experts.h"
#include "ops/guest_attention.h"
#include "ops/linear.h"
#include "ops/paged_kv.h"
#include "ops/peer_area.h"
#include "ops/rms_norm.h"
#include "spec/model_spec.h"
#include "spec/operations.h"
#include "store/image_layout.h"

namespace heddle::engine {

/// How many ways of rotating there are.
inline constexpr std::size_t kLayerRopes = 3;
[[nodiscard]] constexpr std::size_t index_of(spec::LayerRope rope) {
  return static_cast<std::size_t>(rope);
}

/// One pass of tokens through a model, as its kernels see it: all tensors on the device.
struct Batch {
  std::int64_t tokens = 0;
  ops::BatchRows rows{};
  // Of encoders, i32 [tokens]: rows of the tables of positions and of types.
  ops::ConstTensorRef positions{};
  ops::ConstTensorRef types{};
  bool resumes = false;  ///< Some sequence goes on from what it has on pages.
  /// By LayerRope, where a layer of the model has it: f32 [tokens, spec::rotary_dim()] of that,
  /// RopeFrequencies of each position.
  std::array<ops::ConstTensorRef, kLayerRopes> cos_sin{};
  /// Per KV group of the plan, i32 [sequences, blocks].
  std::vector<ops::ConstTensorRef> block_tables{};

  /// Copies of states that the pass makes on its way, as ops::GatedDeltaArgs has them; of rank 0
  /// where it makes none.
  ops::ConstTensorRef copy_behind{};
  std::vector<ops::ConstTensorRef> copies{};  ///< Per block of the states.

  /// The last sequences, of one token each, whose first positions are with a host (WEAVER).
  struct Guests {
    std::int64_t sequences = 0;
    ops::ConstTensorRef border{};  ///< i32 [sequences]: where what is at home begins.
    std::vector<ops::ConstTensorRef> block_tables{};  ///< As above, of what is away.
    std::byte* base = nullptr;                        ///< Of those blocks, in place of the KV's.
    ops::AttentionHost* host = nullptr;               ///< nullptr: computed at home all the same.
  } guests{};
  std::vector<AdapterRows> adapters{};  ///< Ascending; rows of none are in none of them.
  AdapterTargets adapter_targets = 0;   ///< Products that some of them change.
  /// On GPUs the same on the device: cut_into_tiles().
  const ops::LowRankTile* adapter_tiles = nullptr;
  std::int64_t adapter_tile_count = 0;
};

/// The forward pass of a decoder-only model, or of a range of its layers, or of an encoder
/// (spec::Encoder): enqueues operations and keeps no state. Before each stage of the image
/// (embedding, each layer, head) the stream waits for the bytes of that stage and no more.
///
/// Of a shard (spec/shard.h) it is one rank's part of the pass: hidden states are the same on all
/// ranks, to the bit, and so are logits. What the ranks add up to hidden states, after the
/// embedding, each attention and each MLP, is summed in float32 by their group, and the columns of
/// logits are gathered. Hidden states themselves and the biases behind the sums are the first
/// rank's to bring.
class Decoder {
 public:
  /// The image is at `window`, and as many of its first bytes as `*ready` says are in place; both
  /// outlive the decoder. KV blocks are numbered from `kv_base` on. kCorrupt if the image is not
  /// this model's, kInvalidArgument if no kernel takes its head_dim.
  static Result<Decoder> create(const spec::ModelSpec& model,
                                const store::ImageLayout& layout,
                                const std::byte* window,
                                const std::atomic<std::uint64_t>& ready,
                                KvPlan kv,
                                std::byte* kv_base);

  /// Joins the other ranks of a shard's model: before the first pass, and again where a new group
  /// takes an abandoned one's place. `group` is of the shard's rank and as many ranks, as are
  /// `peers`, where the ranks' devices exchange without the host; both outlive
  /// the decoder or the next join().
  void join(collective::Collective& group, const ops::PeerArea* peers = nullptr);
  /// It is in no group.
  void leave() {
    group_ = nullptr;
    peers_ = nullptr;
  }
  /// The group of a shard, nullptr before it joined one. A whole model has none.
  [[nodiscard]] collective::Collective* group() const { return group_; }
  /// Of a shard whose ranks exchange without the host; nullptr: through it, or not at all.
  [[nodiscard]] const ops::PeerArea* peers() const { return peers_; }

  /// Experts are where `source` says, before the first pass: of a model whose experts take turns
  /// (spec::Experts::slots). It outlives the decoder.
  void take_experts_from(ops::ExpertSource& source) { experts_ = &source; }

  /// hidden = embedding[ids]; ids i32 [tokens], hidden f32 [tokens, hidden].
  void embed(ops::OpContext& context, ops::ConstTensorRef ids, ops::TensorRef hidden) const;
  /// The same of an encoder: activations.hidden = norm(embedding[ids] + positions + types), with
  /// what run_layers() needs of it beside.
  void embed_text(ops::OpContext& context,
                  ops::ConstTensorRef ids,
                  const Batch& batch,
                  const Activations& activations) const;

  /// Runs layers `range` (within the KV plan's) on activations.hidden, which holds what layer
  /// range.begin - 1 gave, and appends the batch's keys and values. Running [a, b) and then [b, c)
  /// is running [a, c), to the bit. An encoder runs all its layers, and its batch has whole texts.
  void run_layers(ops::OpContext& context,
                  LayerRange range,
                  const Batch& batch,
                  const Activations& activations) const;

  /// Final norm of rows `picks` (i32 [n], n <= activations.logit_rows()) of activations.hidden; of
  /// an encoder, which has none, these rows, or where it scores their scores: f32
  /// [n, spec::pooled_width()]. Destroys activations.picked, head_in and logits.
  ops::TensorRef final_hidden(ops::OpContext& context,
                              ops::ConstTensorRef picks,
                              const Activations& activations) const;

  /// Head of the final norm of rows `picks`. Returns the logits, f32 [n, vocab]. Destroys all
  /// activations but hidden.
  ops::TensorRef logits(ops::OpContext& context,
                        ops::ConstTensorRef picks,
                        const Activations& activations) const;

  /// Whether all of the image is in place: nothing waits for a stage any more.
  [[nodiscard]] bool whole() const;

  [[nodiscard]] const spec::ModelSpec& model() const { return model_; }
  [[nodiscard]] const KvPlan& kv_plan() const { return kv_; }
  /// What it computes in: the type of the inputs of products.
  [[nodiscard]] spec::DType dtype() const { return dtype_; }
  /// The rotations of positions in layers that rotate so; nullptr where there are none. For the
  /// thread that runs passes.
  [[nodiscard]] RopeTable* rope(spec::LayerRope rope) const { return ropes_[index_of(rope)].get(); }

 private:
  Decoder() = default;
  void wait_for_stage(ops::OpContext& context, std::int64_t stage) const;
  void attend(ops::OpContext& context,
              std::int64_t layer,
              const Batch& batch,
              const Activations& activations) const;
  void update_states(ops::OpContext& context,
                     std::int64_t layer,
                     const Batch& batch,
                     const Activations& activations) const;
  void add_mixed(ops::OpContext& context,
                 std::int64_t layer,
                 const Batch& batch,
                 const ops::TensorRef& mixed,
                 const Activations& activations) const;
  void add_adapters(ops::OpContext& context,
                    const Batch& batch,
                    std::int64_t layer,
                    store::AdapterTarget target,
                    const ops::TensorRef& x,
                    const ops::TensorRef& out,
                    const Activations& activations) const;
  void norm_sums(ops::OpContext& context,
                 const Batch& batch,
                 const ops::ConstTensorRef& weight,
                 const ops::ConstTensorRef& bias,
                 const Activations& activations) const;
  void add_and_norm(ops::OpContext& context,
                    const Batch& batch,
                    ops::LinearArgs product,
                    const ops::ConstTensorRef& weight,
                    const ops::ConstTensorRef& bias,
                    const Activations& activations) const;
  void encode(ops::OpContext& context, const Batch& batch, const Activations& activations) const;
  [[nodiscard]] ops::TensorRef pick_encoded(ops::OpContext& context,
                                            ops::ConstTensorRef picks,
                                            const Activations& activations) const;
  void choose_experts(ops::OpContext& context,
                      std::int64_t layer,
                      std::int64_t tokens,
                      const Activations& activations) const;
  void take_experts(ops::OpContext& context,
                    std::int64_t layer,
                    std::int64_t tokens,
                    const Activations& activations,
                    const ops::ConstTensorRef& residual,
                    const ops::TensorRef& out) const;
  void feed_forward_beside(ops::OpContext& context,
                           std::int64_t layer,
                           const Batch& batch,
                           const Activations& activations,
                           const ops::ConstTensorRef& norm) const;
  void gate(ops::OpContext& context,
            std::int64_t layer,
            const Batch& batch,
            const Activations& activations) const;
  void feed_forward(ops::OpContext& context,
                    std::int64_t layer,
                    const Batch& batch,
                    const Activations& activations,
                    const ops::ConstTensorRef& norm) const;
  [[nodiscard]] ops::RmsNormArgs norm_of(const ops::TensorRef& hidden,
                                         const ops::ConstTensorRef& weight,
                                         const ops::TensorRef& out) const;
  void add_product(ops::OpContext& context,
                   const ops::LinearArgs& product,
                   const ops::ConstTensorRef& norm,
                   const ops::TensorRef& normed) const;
  [[nodiscard]] ops::TensorRef projected(const ops::OpContext& context,
                                         const Batch& batch,
                                         const ops::ConstTensorRef& bias,
                                         const ops::TensorRef& normed,
                                         ops::TensorRef rows) const;
  void pick_normed(ops::OpContext& context,
                   ops::ConstTensorRef picks,
                   const Activations& activations,
                   ops::TensorRef out) const;
  [[nodiscard]] ops::PagedKv paged_kv(std::int64_t layer, ops::ConstTensorRef table) const;
  void attend_with_guests(ops::OpContext& context,
                          std::int64_t layer,
                          const Batch& batch,
                          const ops::AttentionArgs& all,
                          const Activations& activations) const;
  [[nodiscard]] ops::ConstTensorRef residual(const ops::TensorRef& hidden) const;
  void norm_heads(ops::OpContext& context,
                  const LayerWeights& w,
                  const spec::Heads& heads,
                  const ops::TensorRef& qkv) const;
  void norm_into(ops::OpContext& context,
                 const ops::ConstTensorRef& weight,
                 const ops::TensorRef& hidden,
                 const ops::TensorRef& normed) const;
  void add_branch(ops::OpContext& context,
                  const ops::ConstTensorRef& norm,
                  const ops::TensorRef& branch,
                  const ops::TensorRef& hidden,
                  const ops::ConstTensorRef& next_norm,
                  const ops::TensorRef& next) const;
  void sum_over_ranks(ops::OpContext& context, const ops::TensorRef& hidden) const;

  spec::ModelSpec model_{};
  DecoderWeights weights_{};
  std::array<std::unique_ptr<RopeTable>, kLayerRopes> ropes_{};
  std::vector<std::uint64_t> stage_end_{};
  const std::atomic<std::uint64_t>* ready_ = nullptr;
  KvPlan kv_{};
  spec::DType dtype_ = spec::DType::kBf16;
  std::byte* kv_base_ = nullptr;
  collective::Collective* group_ = nullptr;
  const ops::PeerArea* peers_ = nullptr;
  ops::ExpertSource* experts_ = nullptr;
  std::vector<std::int64_t> vocab_ends_{};  ///< By rank, of their spec::vocab_range().
};

}  // namespace heddle::engine
