#pragma once

#include "config/config.h"
#include "config/fields.h"
#include "config/reader.h"

namespace heddle::config {

/// Names the key that says which servers elsewhere have further models: peers.
void declare_peers(Fields& fields, Config& config);

/// Refuses a model of a peer that has the name of another, once all is read.
void check_peers(const Config& config, Diagnosis& diagnosis);

}  // namespace heddle::config
