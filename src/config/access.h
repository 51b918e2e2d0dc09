#pragma once

#include "config/config.h"
#include "config/fields.h"

namespace heddle::config {

/// Names the keys that say who may ask what: apiKeys, allowed_hosts, cors_origins.
void declare_access(Fields& fields, Config& config);

}  // namespace heddle::config
