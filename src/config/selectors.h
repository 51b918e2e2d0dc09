#pragma once

#include "config/config.h"
#include "config/fields.h"
#include "config/reader.h"

namespace heddle::config {

/// The keys that make names stand for models: `selectors`, `profiles` and `includeAliasesInList`.
void declare_selectors(Fields& fields, Config& config);

/// Refuses selectors and profiles that cannot be meant, once all models are known: names that are
/// taken, targets that are no models, and targets to spill over to that displace each other.
void check_selectors(const Config& config, Diagnosis& diagnosis);

}  // namespace heddle::config
