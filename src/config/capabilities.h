#pragma once

#include "config/config.h"
#include "config/fields.h"

namespace heddle::config {

/// The key `capabilities` of a model.
void declare_capabilities(Fields& fields, Capabilities& capabilities);

}  // namespace heddle::config
