#pragma once

#include "config/config.h"
#include "config/reader.h"

namespace heddle::config {

/// Takes the LoRA adapters out of the models and gives each to its base (ModelConfig::adapters),
/// with the base's settings beside its own. Where it is to be loaded at the start its base is. What
/// cannot be meant becomes a problem: no such base, a base that is an adapter or an engine's, or
/// one that is divided among devices.
void settle_adapters(Config& config, Diagnosis& diagnosis);

/// Refuses keys of an adapter that are its base's to say. To be called once all keys are declared.
void check_adapter_keys(Fields& f, const ModelConfig& model);

}  // namespace heddle::config
