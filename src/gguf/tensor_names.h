#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"
#include "spec/model_spec.h"

namespace heddle::gguf {

/// How a directory of a model of that architecture calls a tensor:
/// "model.layers.3.self_attn.q_proj.weight" for "blk.3.attn_q.weight". Of a tensor that has those
/// of all experts, the tensor of `expert`. A name that is not known stays as it is.
[[nodiscard]] std::string directory_name(std::string_view tensor,
                                         spec::Architecture architecture,
                                         std::int64_t expert = 0);
/// The reverse.
[[nodiscard]] std::string tensor_name(std::string_view directory, spec::Architecture architecture);

/// Whether a tensor has those of all experts, one after the other.
[[nodiscard]] bool is_of_experts(std::string_view tensor);

/// A tensor of a file, or the part of one that a model directory has as a tensor of its own.
struct DirectoryTensor {
  std::string name{};            ///< In a directory.
  Tensor stored{};               ///< Where it is in the file; `name` is the whole tensor's.
  std::int64_t interleaved = 0;  ///< interleaved_rows().
};

/// The tensors of a file as a directory would have them: of those of experts each expert's, and
/// none of layers that guess further tokens (kPredictingLayers).
[[nodiscard]] std::vector<DirectoryTensor> directory_tensors(const GgufFile& file);

/// The rows of a head of this tensor, where they stand in another order than in a model directory:
/// row 2 i of the file is row i there, and row 2 i + 1 is row i + head_dim / 2, since llama.cpp
/// rotates neighbours together, and a directory's models halves. 0 where they stand in order.
[[nodiscard]] std::int64_t interleaved_rows(const GgufFile& file, std::string_view tensor);

/// What a head has of numbers; 0 where the metadata do not say.
[[nodiscard]] std::int64_t head_dim_of(const GgufFile& file, std::string_view architecture);

}  // namespace heddle::gguf
