#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/config_json.h"
#include "spec/model_spec.h"
#include "spec/quantisation.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// What a model directory says about itself, before anybody looks at its tensors.
struct ModelConfig {
  spec::ModelSpec model{};  ///< With the ends of turn of generation_config.json, where it has any.
  spec::GenerationDefaults generation{};
  spec::Quantisation quantisation{};  ///< Of a directory.
};

/// Reads config.json and, where there is one, generation_config.json; of a GGUF file, its metadata.
[[nodiscard]] Result<ModelConfig> read_model_config(const std::filesystem::path& model);

/// Holds tensors against a model: every tensor that the image of `model` needs is there, with its
/// shape and a type that can be converted (convert.h). Tensors that show that the model is
/// another one (a bias or norm that config.json says there is not, a layer too many) are errors
/// too; others that nobody needs are returned, by name. Rotary tables and the head of a tied model
/// are known and not mentioned. kCorrupt, naming tensor, file, and what config.json wants,
/// otherwise.
[[nodiscard]] Result<std::vector<std::string>> check_tensors(const TensorSet& tensors,
                                                             const spec::ModelSpec& model);

/// A model directory in Hugging Face's form whose config.json and safetensors agree, or a GGUF file
/// whose metadata and tensors do. What its tensors are stored as stays known (StoredTensor::type),
/// whatever the image is to have.
struct Checkpoint {
  ModelConfig config{};
  TensorSet tensors{};
  std::vector<std::string> unused{};  ///< Tensors that nothing reads; worth a warning.

  static Result<Checkpoint> open(const std::filesystem::path& model);
  /// Of a config and tensors that somebody has read: joins those of packed matrices, notes the
  /// types of matrices that are blocks (ModelSpec::formats), and checks.
  static Result<Checkpoint> of(ModelConfig config, TensorSet tensors);
};

}  // namespace heddle::store
