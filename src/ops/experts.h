#pragma once

#include "ops/context.h"
#include "ops/tensor_ref.h"

/// A mixture of experts in place of an MLP (N. Shazeer et al., "Outrageously Large Neural
/// Networks", arXiv:1701.06538): a router says which few of many gated MLPs a token takes.
namespace heddle::ops {

/// On CUDA: tokens that take their experts at once, at most.
inline constexpr std::int64_t kExpertTokens = 2048;
/// Pieces of the scratch memory below begin at multiples of it [bytes].
inline constexpr std::int64_t kExpertPiece = 256;

/// Scratch memory that experts() takes of a CUDA stream, for `tokens` of its tokens up to
/// kExpertTokens [bytes]. `apart`: gates and ups are two matrices.
[[nodiscard]] std::size_t expert_scratch_bytes(std::int64_t tokens,
                                               std::int64_t active,
                                               std::int64_t experts,
                                               std::int64_t hidden,
                                               std::int64_t width,
                                               bool apart);

struct ChooseExpertsArgs {
  ConstTensorRef logits{};  ///< f32 [tokens, experts]: what the router gives.
  bool normalised = false;  ///< Weights of a token add up to 1,
  ConstTensorRef scale{};   ///< f32 [experts], or absent: and are multiplied with those then.
  TensorRef chosen{};       ///< i32 [tokens, active], active <= experts.
  TensorRef weights{};      ///< f32 [tokens, active]
};

/// chosen[t]: the experts with the largest logits, ascending by number; of equal ones the lower
/// number. weights[t]: the softmax over all experts at those, or divided by its sum over them. A
/// number that is not one is the largest, so that what comes of the token is none either. tokens ==
/// 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void choose_experts(OpContext& context, const ChooseExpertsArgs& args);

/// Where the weights of one expert lie; as parts of ExpertsArgs' matrices, null where those are
/// absent.
struct ExpertWeights {
  const std::byte* gate_up = nullptr;
  const std::byte* up = nullptr;
  const std::byte* gate_up_scale = nullptr;
  const std::byte* down = nullptr;
  const std::byte* down_scale = nullptr;
};

/// Experts that take turns in memory.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  /// Has the weights of an expert of a layer in memory, until the next call. Called by the thread
  /// that runs a stream's work.
  virtual ExpertWeights bring(std::int64_t layer, std::int64_t expert) = 0;
};

struct ExpertsArgs {
  ConstTensorRef x{};        ///< [tokens, hidden], of the type that LinearArgs::x has.
  ConstTensorRef chosen{};   ///< i32 [tokens, active], ascending in each row.
  ConstTensorRef weights{};  ///< f32 [tokens, active]
  ConstTensorRef gate_up{};  ///< [experts 2 width, hidden]: of each expert gates, then ups;
  ConstTensorRef up{};       ///< or `gate_up` has [experts width, hidden] gates, and this ups.
  ConstTensorRef gate_up_scale{};  ///< f32 [experts 2 width] with int8, and only then.
  ConstTensorRef down{};           ///< [experts hidden, width]
  ConstTensorRef down_scale{};     ///< f32 [experts hidden], likewise.
  ConstTensorRef gate_up_bias{};   ///< f32 [experts 2 width], gates first, or absent.
  ConstTensorRef down_bias{};      ///< f32 [experts hidden], or absent.
  bool gelu = false;               ///< Gates become gelu_mul()'s, and there is no limit.
  float limit = 0.0F;              ///< Of gates and ups, as the next: SiluMulArgs.
  float gain = 1.0F;
  /// Of CPUs alone: has the matrices and scales, of which nothing is read where those above say;
  /// null: they lie there.
  ExpertSource* source = nullptr;
  std::int64_t layer = 0;     ///< For `source`.
  ConstTensorRef residual{};  ///< f32 [tokens, hidden], or absent. May be `out`.
  // Memory that it works in, for the tokens of one expert.
  TensorRef rows{};     ///< As `x`.
  TensorRef in{};       ///< f32 [tokens, 2 width]
  TensorRef gated{};    ///< [tokens, width], of x's type.
  TensorRef product{};  ///< f32 [tokens, hidden]
  TensorRef out{};      ///< f32 [tokens, hidden]. Overlaps none but `residual`.
};

/// out[t] = residual[t] + sum_k weights[t][k] E(x[t]) with E the MLP of expert chosen[t][k]:
/// down_e silu_mul(gate_up_e x[t]), or gelu_mul(), each product as linear() gives it, with its bias
/// where there is one. The matrices may be of different types that compute alike, such as blocks;
/// where they are blocks, experts have whole panels (spec/block_panels.h). Experts are added one
/// after the other, ascending, so on a CPU the bits of a token do not depend on the others. Weights
/// of experts that no token chose are not read. On CUDA the matrices are blocks, or bf16 of a
/// multiple of eight columns, within spec/operations.h's bounds, and `rows`, `in`, `gated` and
/// `product` are not used but for their shapes. tokens == 0 is a no-op. Shapes and types that do
/// not fit are bugs and CHECK-fail.
void experts(OpContext& context, const ExpertsArgs& args);

struct ShareRowsArgs {
  ConstTensorRef gate{};  ///< f32 [tokens, 1]
  TensorRef rows{};       ///< f32 [tokens, n]
};

/// rows[t][i] /= 1 + exp(-gate[t]): how much of an MLP that all tokens share each takes. tokens ==
/// 0 is a no-op. Shapes and types that do not fit are bugs and CHECK-fail.
void share_rows(OpContext& context, const ShareRowsArgs& args);

}  // namespace heddle::ops
