#include "gguf/matrix_formats.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "spec/block_panels.h"

namespace heddle::gguf {

spec::DType matrix_format(BlockType type) {
  switch (type) {
    case BlockType::kQ80:
      return spec::DType::kQ80;
    case BlockType::kQ40:
      return spec::DType::kQ40;
    case BlockType::kQ41:
      return spec::DType::kQ41;
    case BlockType::kQ50:
      return spec::DType::kQ50;
    case BlockType::kQ51:
      return spec::DType::kQ51;
    case BlockType::kQ4K:
      return spec::DType::kQ4K;
    case BlockType::kQ5K:
      return spec::DType::kQ5K;
    case BlockType::kQ6K:
      return spec::DType::kQ6K;
    case BlockType::kMxfp4:
      return spec::DType::kMxfp4;
    default:
      return spec::DType::kBf16;
  }
}

std::vector<spec::DType> matrix_formats(const GgufFile& file, std::int64_t layers, bool encoder) {
  using spec::Matrix;
  constexpr std::array kNames = {std::pair{Matrix::kQ, "attn_q"},
                                 std::pair{Matrix::kK, "attn_k"},
                                 std::pair{Matrix::kV, "attn_k"},  // Unless it has values.
                                 std::pair{Matrix::kV, "attn_v"},
                                 std::pair{Matrix::kOut, "attn_output"},
                                 std::pair{Matrix::kGate, "ffn_gate"},
                                 std::pair{Matrix::kUp, "ffn_up"},
                                 std::pair{Matrix::kDown, "ffn_down"},
                                 std::pair{Matrix::kQ, "attn_qkv"},
                                 std::pair{Matrix::kK, "attn_qkv"},
                                 std::pair{Matrix::kV, "attn_qkv"},
                                 std::pair{Matrix::kK, "attn_gate"},
                                 std::pair{Matrix::kQ, "ssm_in"},
                                 std::pair{Matrix::kK, "ssm_in"},
                                 std::pair{Matrix::kOut, "ssm_out"},
                                 std::pair{Matrix::kGate, "ffn_gate_shexp"},
                                 std::pair{Matrix::kUp, "ffn_up_shexp"},
                                 std::pair{Matrix::kDown, "ffn_down_shexp"},
                                 std::pair{Matrix::kExpertsGate, "ffn_gate_exps"},
                                 std::pair{Matrix::kExpertsUp, "ffn_up_exps"},
                                 std::pair{Matrix::kExpertsGate, "ffn_gate_up_exps"},
                                 std::pair{Matrix::kExpertsUp, "ffn_gate_up_exps"},
                                 std::pair{Matrix::kExpertsDown, "ffn_down_exps"}};
  std::map<std::string_view, spec::DType> types;
  for (const Tensor& tensor : file.tensors) {
    types.emplace(tensor.name, matrix_format(tensor.type));
  }
  std::vector<spec::DType> formats(spec::format_count(layers), spec::DType::kBf16);
  const auto set = [&](Matrix matrix, std::int64_t layer, const std::string& name) {
    if (const auto found = types.find(name); found != types.end()) {
      formats[spec::format_index(matrix, layer)] = found->second;
    }
  };
  if (!encoder) {  // Whose table of words is looked up beside others, as plain numbers.
    set(Matrix::kEmbedding, 0, "token_embd.weight");
  }
  set(Matrix::kHead, 0, "output.weight");
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    // Where gates and ups are one, that is called as ups are elsewhere.
    set(Matrix::kGate, layer, fmt::format("blk.{}.ffn_up.weight", layer));
    for (const auto& [matrix, name] : kNames) {
      set(matrix, layer, fmt::format("blk.{}.{}.weight", layer, name));
    }
  }
  const bool any = std::ranges::any_of(formats, spec::is_blocks);
  return any ? formats : std::vector<spec::DType>{};
}

}  // namespace heddle::gguf
