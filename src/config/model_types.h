#pragma once

#include "config/config.h"
#include "config/reader.h"

namespace heddle::config {

/// The keys of a model that say what weights and KV are kept as, and inputs of products rounded to.
void declare_types(Fields& f, ModelConfig& model);

}  // namespace heddle::config
