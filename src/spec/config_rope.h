#pragma once

#include <string_view>

#include "spec/config_family.h"
#include "spec/json_fields.h"
#include "spec/model_spec.h"

namespace heddle::spec {

/// Reads the rotary embedding: `rope_theta` and `rope_scaling`, or `rope_parameters`, and what
/// these do to the length of the context. Gemma 3 has two, of which `rope_local_base_freq` or
/// `rope_parameters.sliding_attention` is that of layers with a window.
/// @param where  What begins messages: "config.json: ".
void read_rope(JsonFields& fields, std::string_view where, const Family& family, ModelSpec& model);

}  // namespace heddle::spec
