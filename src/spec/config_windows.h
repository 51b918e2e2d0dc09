#pragma once

#include "spec/config_family.h"
#include "spec/json_fields.h"
#include "spec/model_spec.h"

namespace heddle::spec {

/// Fills ModelSpec::window, and which layers rotate apart from the others (layer_rope). Windows are
/// of all layers (Mistral, Mixtral, Qwen3-MoE, Phi-3), or of those that `layer_types` names, or
/// that a pattern does (Qwen2, Qwen3, Gemma, SmolLM3). Requires the dimensions to be there.
void read_windows(JsonFields& fields, const Family& family, ModelSpec& model);

}  // namespace heddle::spec
