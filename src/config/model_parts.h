#pragma once

#include "config/config.h"
#include "config/fields.h"

namespace heddle::config {

/// How a model is divided: among devices, among hosts, and between a device and its host.
void declare_parts(Fields& f, ModelConfig& model);

}  // namespace heddle::config
