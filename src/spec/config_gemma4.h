#pragma once

#include "spec/json_fields.h"
#include "spec/model_spec.h"

namespace heddle::spec {

/// Reads what Gemma 4's text models have of their own: heads of other sizes in layers without a
/// window (`global_head_dim`, `num_global_key_value_heads`), whose keys may be values too
/// (`attention_k_eq_v`), experts beside the MLP (`enable_moe_block`). Rejects embeddings by layer
/// and layers that share keys and values, as E2B and E4B have them. Needs the model's dimensions.
void read_gemma4(JsonFields& fields, ModelSpec& model);

}  // namespace heddle::spec
