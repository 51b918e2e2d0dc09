#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace heddle::spec {

/// In which tensors the matrices of a checkpoint are stored, where they are not plain numbers.
enum class Packing : std::uint8_t {
  kNone,
  kAwq,     ///< `qweight`, `qzeros`, `scales`; inputs by outputs, eight outputs to a word.
  kGptq,    ///< Likewise, but eight inputs to a word, and `g_idx`.
  kPacked,  ///< `weight_packed`, `weight_scale`, `weight_zero_point`; outputs by inputs.
  kScaled,  ///< `weight` of FP8 or int8, and `weight_scale` or `weight_scale_inv`.
  kTurned,  ///< Plain numbers, inputs by outputs; never by `quantization_config`.
  kMxfp4    ///< `_blocks` of four bits and `_scales` of 32 each, of experts.
};

/// What `quantization_config` of config.json says.
struct Quantisation {
  Packing packing = Packing::kNone;
  /// Of an integer, 4 or 8; the next four like this one are not of kScaled.
  int bits = 0;
  std::int64_t group = 0;  ///< Inputs that share a scale; 0: all of a row.
  bool symmetric = false;  ///< The middle of the range stands for 0 everywhere.
  bool ordered = false;    ///< Which group an input is of, `g_idx` says; else neighbours share one.
  int zero_offset = 0;     ///< What stored zeros lack.
  std::int64_t block_rows = 0;     ///< Of kScaled: outputs and inputs that share a scale, where
  std::int64_t block_columns = 0;  ///< those do; 0: the scales' shape tells.
  /// Of kScaled: inputs of products were to be FP8 as well, each token by a scale of its own or all
  /// by one of the checkpoint's. Others are taken as they are.
  bool f8_inputs = false;
};

/// Reads `quantization_config` of a config.json: `awq`, `gptq` and `compressed-tensors` of 4 or 8
/// bits, FP8 by matrix, row or block (`fp8`, `fbgemm_fp8`, `modelopt`, `compressed-tensors`), and
/// the experts of gpt-oss (`mxfp4`). Without one there is none. Others, and what would change the
/// mathematics, are one error that names `file`, the field, its value and what would be right.
[[nodiscard]] Result<Quantisation> parse_quantisation(std::string_view text, std::string_view file);

}  // namespace heddle::spec
