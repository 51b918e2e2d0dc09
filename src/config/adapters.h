#pragma once

#include <string>

#include "base/result.h"
#include "config/config.h"
#include "config/reader.h"

namespace heddle::config {

/// Takes the LoRA adapters out of the models and gives each to its base (ModelConfig::adapters),
/// with the base's settings beside its own. Where it is to be loaded at the start its base is. What
/// cannot be meant becomes a problem: no such base, a base that is an adapter or an engine's, or
/// one that is divided among devices.
void settle_adapters(Config& config, Diagnosis& diagnosis);

/// An adapter that was loaded while the server runs.
struct LoadedAdapter {
  std::string name{};       ///< As requests call it.
  std::string directory{};  ///< Absolute.
  std::string base{};  ///< Its model, by id or alias; empty: the only one that has room for it.
};

/// Adds an adapter to its base, and returns the id of that. `config` stays as it is where that
/// cannot be: kNotFound where there is no such base, kInvalidArgument for a name that is another's
/// or none that requests can say, for a base that cannot have adapters, or where the base is not
/// named and not clear. Touches no file.
[[nodiscard]] Result<std::string> add_adapter(Config& config, const LoadedAdapter& adapter);

/// The keys of a model that are about adapters.
void declare_adapter(Fields& f, ModelConfig& model);
/// The section about those that are loaded while the server runs.
void declare_adapters(Fields& f, Config& config);

/// Refuses keys of an adapter that are its base's to say. To be called once all keys are declared.
void check_adapter_keys(Fields& f, const ModelConfig& model);

}  // namespace heddle::config
