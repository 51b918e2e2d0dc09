#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "spec/dtype.h"

namespace heddle::spec {

/// The families of models that configuration tells apart.
enum class Architecture : std::uint8_t {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kGemma2,
  kGemma3,
  kGranite,
  kOlmo2,
  kSmolLm3,
  kPhi3,
  kQwen3Next,
  kQwen35,
  kQwen35Moe,
  kGptOss,
  kBert,
  kRoberta,
  kXlmRoberta,
  kGemma4
};

/// What the gate of an MLP becomes before it is multiplied; of an encoder, whose MLP has no gate,
/// what it becomes itself.
enum class Activation : std::uint8_t {
  kSilu,
  kGeluTanh,
  kGelu  ///< By the error function.
};

enum class RopeKind : std::uint8_t { kDefault, kLinear, kLlama3, kYarn, kLongRope, kProportional };

/// How rotary frequencies are stretched beyond the context a model was trained on.
struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0;
  double low_freq_factor = 1.0;   ///< llama3.
  double high_freq_factor = 4.0;  ///< llama3.
  double beta_fast = 32.0;        ///< yarn.
  double beta_slow = 1.0;         ///< yarn.
  /// yarn and longrope; 0 means: derive it from factor (and the mscales).
  double attention_factor = 0.0;
  double mscale = 0.0;          ///< yarn; 0 means absent.
  double mscale_all_dim = 0.0;  ///< yarn; 0 means absent.
  bool truncate = true;         ///< yarn: round the correction range to whole dimensions.
  /// llama3, yarn and longrope; 0 means max_position.
  std::int64_t original_max_position = 0;
  /// longrope: by what each frequency is divided, [rotary dimensions / 2].
  std::vector<double> factors{};
  /// longrope: those of a context within original_max_position, which fit_rope() puts in `factors`.
  std::vector<double> short_factors{};
  /// proportional: of the pairs of a head so many rotate, the first ones, at the speeds that they
  /// have where all do.
  double share = 1.0;
};

/// A mixture of experts in place of each layer's MLP: gated MLPs, of which a token takes the
/// likeliest few, as its router says.
struct Experts {
  std::int64_t count = 0;   ///< 0: there are none.
  std::int64_t active = 0;  ///< That a token takes, 1 to `count`.
  /// Width of each.
  std::int64_t intermediate = 0;
  /// What a token's experts weigh adds up to 1; else they weigh what the softmax over all says.
  bool normalised = false;
  bool biased = false;  ///< Router, gates, ups and downs have biases.
  /// Above 0 gates are at most this, ups within it on both sides, and a gate g and an up u become
  /// g / (1 + exp(-gate_gain g)) (u + 1), as gpt-oss has it; 0: as an MLP elsewhere.
  double gate_limit = 0.0;
  double gate_gain = 1.0;
  /// Experts of all layers that a device has in its memory at once, and that take turns there: the
  /// others stay with the host. 0: it has all of them.
  std::int64_t slots = 0;
  /// They are beside an MLP of which every token takes all. Both have norms of their own, before
  /// them and of what they give, and so has the router, whose choice weighs by expert (Gemma 4).
  bool beside = false;
  friend bool operator==(const Experts&, const Experts&) = default;
};

/// What a model multiplies numbers with on their way, and which of them it keeps within bounds: a
/// soft cap c makes c tanh(x / c) of x.
struct Scales {
  double embedding = 1.0;  ///< What the embedding gives.
  double attention = 0.0;  ///< Scores of attention; 0: 1 / sqrt(head_dim).
  double residual = 1.0;   ///< What attention and MLP add to the hidden states.
  double logits = 1.0;
  double attention_cap = 0.0;  ///< Of scaled scores; 0: none, as the next.
  double logit_cap = 0.0;
  friend bool operator==(const Scales&, const Scales&) = default;
};

/// By which rotary embedding a layer turns queries and keys.
enum class LayerRope : std::uint8_t {
  kModels,  ///< By rope_theta and its scaling.
  kLocal,   ///< By local_theta, unscaled.
  kNone     ///< Not at all.
};

/// Where a layer has its norms.
enum class Norms : std::uint8_t {
  kBefore,  ///< Of what goes into attention and MLP.
  kAround,  ///< Of that, and of what they give, before it is added (Gemma).
  kAfter,   ///< Of what they give alone (OLMo 2).
  kOfSums   ///< Of the sums, once what they give was added (BERT).
};

/// What mixes the tokens of a sequence in a layer.
enum class Mixer : std::uint8_t {
  kAttention,
  kDeltaRule  ///< A state of fixed size, LinearAttention.
};

/// Layers that keep a state in place of keys and values: linear attention by the gated delta rule
/// (S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464), as Qwen3-Next has
/// it. Each key head serves value_heads / key_heads value heads.
struct LinearAttention {
  std::int64_t key_heads = 0;    ///< 0: the model has no such layer.
  std::int64_t value_heads = 0;  ///< A multiple of key_heads.
  std::int64_t key_dim = 0;      ///< Of each head.
  std::int64_t value_dim = 0;    ///< Likewise.
  std::int64_t kernel = 0;       ///< Positions that the convolution before it looks at, 2 or more.
  /// Key head k serves value heads k, k + key_heads, ... (files of llama.cpp); else those of a key
  /// head are one after the other.
  bool tiled = false;
  /// A checkpoint has gates in a tensor behind that of queries, keys and values; else one tensor
  /// has all four, by key head (Qwen3-Next).
  bool gates_apart = false;

  [[nodiscard]] std::int64_t keys() const { return key_heads * key_dim; }
  [[nodiscard]] std::int64_t values() const { return value_heads * value_dim; }
  /// What the convolution goes over: queries, keys and values.
  [[nodiscard]] std::int64_t channels() const { return 2 * keys() + values(); }
  friend bool operator==(const LinearAttention&, const LinearAttention&) = default;
};

/// What makes a model an encoder (J. Devlin et al., "BERT: Pre-training of Deep Bidirectional
/// Transformers for Language Understanding", arXiv:1810.04805): a token attends to all of its text,
/// so a text is computed in one pass, and stands for itself in place of being continued. Norms are
/// of mean and variance, with biases; the MLP has no gate; all products have biases.
struct Encoder {
  /// Rows of the table of positions, which are added to embeddings; 0: the model is a decoder.
  std::int64_t positions = 0;
  std::int64_t first_position = 0;  ///< Which of them is a text's first token's.
  std::int64_t types = 0;           ///< Rows of the table of token types, likewise; at least 1.
  /// It has a head that scores a text, or a pair of them, by its first token's hidden state, in
  /// place of giving hidden states: tanh of a product, then one number of that.
  bool scores = false;
  /// Of such a head: it has the last number alone, without the product before it.
  bool bare = false;
  friend bool operator==(const Encoder&, const Encoder&) = default;
};

/// Which part of a model this is: rank `rank` of `ranks` that share its work (spec/shard.h).
struct Shard {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;  ///< 1: the whole model.
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// Which layers of a model this is: stage `index` of a pipeline (spec/pipe_stage.h).
struct PipeStage {
  std::int64_t index = 0;
  /// By stage: the layer before which its layers end; the last is `layers`. Empty: the whole model.
  std::vector<std::int64_t> ends{};
  friend bool operator==(const PipeStage&, const PipeStage&) = default;
};

/// What a decoder, or an encoder, is: the dimensions and switches of config.json, checked. Values
/// only; nothing here says where the weights are or where they run.
struct ModelSpec {
  Architecture architecture = Architecture::kLlama;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Divides heads.
  std::int64_t head_dim = 0;  ///< Even; not necessarily hidden / heads.
  /// Width of the gated MLP that every token takes; 0 where there are only experts.
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t max_position = 0;  ///< Context length in tokens, prompt and answer together.
  double rms_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope{};
  bool qkv_bias = false;
  bool out_bias = false;  ///< Bias of the attention output projection.
  bool mlp_bias = false;
  bool qk_norm = false;          ///< RMSNorm over head_dim of each query and key head (Qwen3),
  bool qk_norm_whole = false;    ///< or over all heads of queries, and of keys, at once (OLMo 2).
  bool tied_embeddings = false;  ///< The output head is the embedding matrix.
  /// Per layer: how many of the newest positions, itself included, a token attends to; 0 = all.
  std::vector<std::int64_t> window{};
  DType stored_dtype =
      DType::kBf16;            ///< config.json's torch_dtype; what a checkpoint mostly holds.
  TokenId bos = -1;            ///< -1 when there is none.
  std::vector<TokenId> eos{};  ///< Any of these ends a turn; generation_config.json wins.
  /// With experts: a layer adds what they give, and `intermediate` is of the MLP that is shared by
  /// all tokens, each of which takes a part of it (Qwen2-MoE).
  Experts experts{};
  /// Of a GGUF file with blocks: which each matrix is stored in, kBf16 for plain numbers, in the
  /// order of format_index() (block_panels.h). Empty where all are plain.
  std::vector<DType> formats{};
  Activation activation = Activation::kSilu;
  Norms norms = Norms::kBefore;
  /// A checkpoint has the weights of norms less 1 (Gemma). Images have them whole.
  bool norm_less_one = false;
  Scales scales{};
  std::vector<LayerRope> layer_rope{};  ///< Per layer; empty: kModels for all.
  double local_theta = 10000.0;         ///< Of layers that are kLocal.
  std::int64_t rotary_dim = 0;  ///< How many elements of a head rotate, the first ones; 0: all.
  bool attention_gate = false;  ///< What attention gives is multiplied by a sigmoid (Qwen3-Next).
  /// Each head has a number, its sink, that counts among the scores of attention, and has no value.
  bool sinks = false;
  LinearAttention linear{};
  std::vector<Mixer> mixer{};  ///< Per layer; empty: kAttention for all.
  Encoder encoder{};
  /// Ranks that its LoRA adapters have at most; 0: it has none.
  std::int64_t adapter_rank = 0;
  KvType kv = KvType::kComputed;  ///< As it is configured; no checkpoint says it.
  // Where layers that are LayerRope::kModels have heads of attention of other sizes (Gemma 4):
  // those, of which `heads` are queries all the same. 0: all layers have the same.
  std::int64_t global_kv_heads = 0;
  std::int64_t global_head_dim = 0;
  /// In those layers what keys are made of, before norm and rotation, is what values are made of.
  bool keys_are_values = false;
  bool value_norm = false;   ///< Norm, without weights, over head_dim of each value head.
  bool layer_scale = false;  ///< What a layer gives is multiplied by a number of its own.
  /// Of a shard `heads`, `kv_heads`, `global_kv_heads` and both `intermediate` are its own, all
  /// else is the whole model's.
  Shard shard{};
  /// Of a stage `layers` and all else is the whole model's.
  PipeStage stage{};
};

}  // namespace heddle::spec
