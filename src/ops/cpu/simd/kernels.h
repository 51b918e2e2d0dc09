#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cpu {

/// out[t][o] = scale[o] sum_i x[t][i] weight[o][i] + bias[o] + residual[t][o], for a block of
/// outputs.
struct LinearBlock {
  const std::byte* x = nullptr;  ///< bfloat16 for int8 and blocks, else of the weights' type.
  std::int64_t x_stride = 0;
  const std::byte* packed = nullptr;  ///< All of x as the kernel's pack lays it out.
  const float* x_scale = nullptr;     ///< By token, with int8: what its integers stand for.
  const std::byte* weight = nullptr;  ///< [outputs, inputs], contiguous; of blocks, in panels.
  const float* scale = nullptr;       ///< By output, with int8.
  const float* bias = nullptr;        ///< Or nullptr.
  const float* residual = nullptr;    ///< Or nullptr; may be `out`.
  std::int64_t residual_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// Tokens that a tile holds, and the inputs that those of a packed product are a multiple of.
constexpr std::int64_t kPackTokens = 16;
constexpr std::int64_t kPackInputs = 32;

/// Inputs that a token has where it is packed.
[[nodiscard]] constexpr std::int64_t padded_inputs(std::int64_t inputs) {
  return (inputs + kPackInputs - 1) / kPackInputs * kPackInputs;
}

/// One tile of tokens to be laid out for a kernel.
struct TokenPack {
  const std::byte* x = nullptr;  ///< [tokens, inputs]: float32 for such weights, else bfloat16.
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;  ///< At most kPackTokens.
  std::int64_t inputs = 0;
  std::byte* out = nullptr;  ///< kPackTokens times what the kernel's token_bytes says.
  float* scale = nullptr;    ///< kPackTokens, for int8.
};

/// A product with weights of one type.
struct LinearKernel {
  void (*multiply)(const LinearBlock& block) = nullptr;
  /// Lays tokens out as `multiply` wants them in LinearBlock::packed, tile after tile: all tiles
  /// but the last are full.
  void (*pack)(const TokenPack& pack) = nullptr;
  /// Bytes that a packed token takes.
  std::int64_t (*token_bytes)(std::int64_t inputs) = nullptr;
};

/// Sixteen rows of FP8 in a panel (spec/f8_panels.h), of which the first `rows` become bfloat16:
/// each number times its scale, rounded to float and then to nearest.
struct F8Panel {
  const std::byte* panel = nullptr;
  std::int64_t inputs = 0;  ///< A multiple of 128.
  std::int64_t rows = 0;
  std::uint16_t* out = nullptr;  ///< [rows, inputs]
};

/// Most rows (query tokens times the heads that share a key head) that one AttentionBlock holds.
constexpr std::int64_t kAttentionRowsMax = 64;
constexpr std::int64_t kHeadDimMax = 512;

/// Attention of rows [row_begin, row_end) of one sequence over one key/value head. Row r is token
/// r / group and query head r % group of the group.
struct AttentionBlock {
  const float* query = nullptr;  ///< Of token 0, first head of the group.
  std::int64_t query_stride = 0;
  std::byte* out = nullptr;  ///< float32, or bfloat16 if `out_bf16`; `out_stride` counts elements.
  std::int64_t out_stride = 0;
  bool out_bf16 = false;
  float* lse = nullptr;  ///< Or nullptr.
  std::int64_t lse_stride = 0;
  /// Positions [begin, end) are attended to, of those that the window and the causal order allow.
  /// Where they are bounds, `begin` is a multiple of SimdKernels::attention_step.
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;
  /// Above 0 there is no causal order: every row attends to positions [0, all).
  std::int64_t all = 0;
  /// What earlier positions gave, or nullptr: by token and head, as AttentionState in
  /// ops/attention.h.
  const float* resumed = nullptr;
  std::int64_t resumed_stride = 0;
  float* left = nullptr;  ///< Takes that in place of `out`; or nullptr.
  std::int64_t left_stride = 0;
  std::int64_t group = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t first_position = 0;  ///< Of token 0.
  std::int64_t window = 0;
  std::int64_t head_dim = 0;
  float scale = 1.0F;
  float soft_cap = 0.0F;            ///< Of scaled scores; 0: none.
  const float* sinks = nullptr;     ///< Of the group's heads, or nullptr.
  const std::byte* keys = nullptr;  ///< Of this layer and head in block 0; values alike.
  const std::byte* values = nullptr;
  /// Of codes: likewise where the scales of keys are, a bfloat16 for each position; values alike.
  const std::byte* key_scales = nullptr;
  const std::byte* value_scales = nullptr;
  std::int64_t token_bytes = 0;  ///< From one position to the next in a block.
  std::int64_t block_bytes = 0;
  std::int64_t block_tokens = 0;
  const std::int32_t* block_table = nullptr;
};

struct RmsNormRow {
  const float* x = nullptr;
  const float* weight = nullptr;  ///< nullptr: ones.
  std::byte* out = nullptr;       ///< May be `x` if it is float32.
  bool bf16 = false;              ///< Of `out`.
  std::int64_t columns = 0;
  float eps = 0.0F;
};

/// A row of layer_norm (ops/layer_norm.h).
struct LayerNormRow {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;       ///< May be `x`.
  std::byte* copy = nullptr;  ///< The same once more, float32 or bfloat16 if `bf16`.
  bool bf16 = false;
  std::int64_t columns = 0;
  float eps = 0.0F;
};

/// A row of gelu (ops/gelu.h).
struct GeluRow {
  const float* x = nullptr;
  std::byte* out = nullptr;
  bool bf16 = false;  ///< Of `out`.
  std::int64_t n = 0;
};

/// A row of silu_mul (ops/silu_mul.h) or gelu_mul (ops/gelu_mul.h).
struct GatedRow {
  const float* gate = nullptr;
  const float* up = nullptr;
  std::byte* out = nullptr;
  bool bf16 = false;  ///< Of `out`, which is float32 otherwise.
  std::int64_t n = 0;
  float limit = 0.0F;  ///< Of silu_mul, as the next; 0: none.
  float gain = 1.0F;
};

/// A row of rescale (ops/rescale.h).
struct RescaleRow {
  const float* x = nullptr;
  std::byte* out = nullptr;  ///< May be `x` if it is float32.
  bool bf16 = false;         ///< Of `out`.
  std::int64_t n = 0;
  float factor = 1.0F;
  float cap = 0.0F;
};

/// A row of sigmoid_mul (ops/sigmoid_mul.h).
struct SigmoidRow {
  const float* gate = nullptr;
  std::byte* rows = nullptr;  ///< In and out.
  bool bf16 = false;          ///< Of `rows`, which are float32 otherwise.
  std::int64_t n = 0;
};

/// The most positions that the convolution of a DeltaHead looks at.
constexpr std::int64_t kDeltaKernel = 8;

/// A key head of gated_delta (ops/gated_delta.h) over consecutive tokens of one sequence. Strides
/// count elements, and columns are of a row of `in`.
struct DeltaHead {
  const float* in = nullptr;  ///< Of the first token.
  std::int64_t in_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t query = 0;  ///< Columns of the head, and so its channels; of all its value heads.
  std::int64_t key = 0;
  std::int64_t value = 0;
  std::int64_t gate = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t value_heads = 0;  ///< Of the key head.
  std::int64_t value_step = 1;   ///< Value heads of all from one of those to the next.
  std::int64_t strips = 0;       ///< Of each of those.
  const float* conv = nullptr;   ///< [all channels, kernel]
  std::int64_t kernel = 0;
  const float* beta = nullptr;  ///< Of the first token and value head; alike `alpha`.
  const float* alpha = nullptr;
  std::int64_t rate_stride = 0;  ///< From a token to the next.
  bool fresh = false;            ///< The sequence begins here: there is no state before it.
  float* tail = nullptr;         ///< As DeltaHeadLayout has them.
  float* state = nullptr;
  const float* norm = nullptr;
  float eps = 0.0F;
  std::byte* out = nullptr;  ///< Of the first token and value head.
  std::int64_t out_stride = 0;
  bool bf16 = false;  ///< Of `out`, which is float32 otherwise.
};

/// The innermost loops of one instruction set. All sets give the same bits, with two exceptions:
/// linear_bf16 of simd_x86_bf16() takes subnormal numbers for zero, and that of simd_generic()
/// rounds products so small; linear_bf16 and attention but attention_f32 of simd_x86_amx() sum in
/// another order, attention over queries and weights that they round to bfloat16, and of codes over
/// such keys and values.
struct SimdKernels {
  const char* name = nullptr;
  LinearKernel linear_f32{};
  LinearKernel linear_bf16{};
  LinearKernel linear_int8{};  ///< Tokens become numbers of fifteen bits and sign.
  /// Blocks, in the order of spec::DType from kQ80 on. Tokens become integers of eight bits.
  LinearKernel linear_blocks[9]{};
  void (*unpack_f8)(const F8Panel& panel) = nullptr;
  void (*attention_f32)(const AttentionBlock& block) = nullptr;
  void (*attention_bf16)(const AttentionBlock& block) = nullptr;
  /// Over integers with scales, and over E4M3 with scales.
  void (*attention_int8)(const AttentionBlock& block) = nullptr;
  void (*attention_f8)(const AttentionBlock& block) = nullptr;
  /// Positions that attention takes at once, from a multiple of as many on.
  std::int64_t attention_step = 16;
  void (*rms_norm)(const RmsNormRow& row) = nullptr;
  void (*layer_norm)(const LayerNormRow& row) = nullptr;
  void (*gelu)(const GeluRow& row) = nullptr;
  void (*silu_mul)(const GatedRow& row) = nullptr;
  void (*gelu_mul)(const GatedRow& row) = nullptr;
  void (*rescale)(const RescaleRow& row) = nullptr;
  void (*sigmoid_mul)(const SigmoidRow& row) = nullptr;
  void (*gated_delta)(const DeltaHead& head) = nullptr;
};

/// What any processor of the architecture runs. Exact, and slow where there is no fused
/// multiply-add.
[[nodiscard]] const SimdKernels& simd_generic();
#ifdef __x86_64__
[[nodiscard]] const SimdKernels& simd_x86_v3();  ///< AVX2 and FMA.
/// And with the dot products of integers, as processors without AVX-512 have them (AVX-VNNI).
[[nodiscard]] const SimdKernels& simd_x86_vnni();
[[nodiscard]] const SimdKernels& simd_x86_v4();  ///< AVX-512.
[[nodiscard]] const SimdKernels&
simd_x86_bf16();  ///< AVX-512 with the dot products of bfloat16 and of integers.
#endif

#ifdef __x86_64__
[[nodiscard]] const SimdKernels& simd_x86_amx();  ///< And with the tile unit.
/// Whether the processor has the tile unit and the kernel lets this process use it.
[[nodiscard]] bool amx_usable();
#endif

/// The set that products and attention use: that which HEDDLE_SIMD names, else the fastest that
/// this processor runs. CHECKs that there is such a set (ops/cpu/simd/choice.h tells beforehand).
[[nodiscard]] const SimdKernels& simd_kernels();

}  // namespace heddle::ops::cpu
