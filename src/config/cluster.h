#pragma once

#include "config/config.h"
#include "config/fields.h"

namespace heddle::config {

/// Names the key that says which processes a cluster has: cluster.
void declare_cluster(Fields& fields, Config& config);

}  // namespace heddle::config
