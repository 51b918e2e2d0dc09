#pragma once

#include "spec/json_fields.h"
#include "spec/model_spec.h"

namespace heddle::spec {

/// Reads what Qwen3-Next and Qwen3.5 have of their own: which layers are of linear attention
/// (`layer_types`, or all but every `full_attention_interval`-th), how large those are, and that
/// attention is gated. Rejects sizes that kernels do not take, and models without a layer of
/// attention. Needs the model's layers.
void read_hybrid(JsonFields& fields, bool attention_bias, ModelSpec& model);

}  // namespace heddle::spec
