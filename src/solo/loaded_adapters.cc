#include "solo/loaded_adapters.h"

#include <algorithm>
#include <utility>

namespace heddle::solo {

bool LoadedAdapters::has(const std::string& name) const {
  return std::ranges::find(adapters_, name, &config::LoadedAdapter::name) != adapters_.end();
}

/// The last is the one that may not fit; the others did.
Result<LoadedAdapters::Plan> LoadedAdapters::plan(config::Config file) const {
  Plan plan{.adapters = *this, .config = std::move(file)};
  for (const config::LoadedAdapter& adapter : adapters_) {
    Result<std::string> base = config::add_adapter(plan.config, adapter);
    if (!base) {
      return base.error();
    }
    plan.base = std::move(*base);
  }
  return plan;
}

Result<LoadedAdapters::Plan> LoadedAdapters::with(const config::Config& file,
                                                  const config::LoadedAdapter& adapter,
                                                  bool in_place) const {
  LoadedAdapters next = *this;
  if (has(adapter.name)) {
    if (!in_place) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "lora_name: the adapter \"" + adapter.name +
                              "\" has already been loaded; load_inplace: true replaces it"};
    }
    std::erase_if(next.adapters_, [&](const auto& one) { return one.name == adapter.name; });
  }
  if (next.adapters_.size() >= kMost) {
    return Error{.code = Code::kInvalidArgument,
                 .message = std::to_string(kMost) +
                            " adapters have been loaded, which is the most "
                            "there can be: unload one, or put some into the configuration"};
  }
  next.adapters_.push_back(adapter);
  return next.plan(file);
}

Result<LoadedAdapters::Plan> LoadedAdapters::without(const config::Config& file,
                                                     const std::string& name) const {
  if (has(name)) {
    LoadedAdapters next = *this;
    std::erase_if(next.adapters_, [&](const auto& one) { return one.name == name; });
    return next.plan(file);
  }
  const bool named = std::ranges::any_of(file.models, [&](const config::ModelConfig& model) {
    return std::ranges::find(model.adapters, name, &config::ModelConfig::id) !=
           model.adapters.end();
  });
  if (named) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "lora_name: the adapter \"" + name +
                            "\" is the configuration's: take it out there, and reload"};
  }
  return Error{.code = Code::kNotFound,
               .message = "lora_name: no adapter \"" + name + "\" has been loaded"};
}

std::vector<std::string> LoadedAdapters::lay_over(config::Config& file) {
  std::vector<std::string> gone;
  std::erase_if(adapters_, [&](const config::LoadedAdapter& adapter) {
    const Result<std::string> base = config::add_adapter(file, adapter);
    if (!base) {
      gone.push_back(adapter.name + ": " + base.error().message);
    }
    return !base.has_value();
  });
  return gone;
}

}  // namespace heddle::solo
