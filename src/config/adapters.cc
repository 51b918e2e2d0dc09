#include "config/adapters.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::config {
namespace {

/// What all adapters of a base have together, as they run in it.
constexpr auto kBaseKeys = std::to_array<std::string_view>({"path",
                                                            "cmd",
                                                            "proxy",
                                                            "container",
                                                            "dtype",
                                                            "kv_cache_dtype",
                                                            "pin",
                                                            "ttl",
                                                            "min_residence",
                                                            "slo",
                                                            "batch",
                                                            "devices",
                                                            "tensor_parallel",
                                                            "pipeline_parallel",
                                                            "cold_start_hosts",
                                                            "context",
                                                            "tool_parser",
                                                            "reasoning_parser",
                                                            "pooling"});

bool is_called(const ModelConfig& model, const std::string& name) {
  return model.id == name || std::ranges::find(model.aliases, name) != model.aliases.end();
}

/// Why a model cannot be the base of an adapter; empty: it can.
std::string base_trouble(const ModelConfig& base) {
  if (!base.adapter.empty()) {
    return " is an adapter itself; name the model that has the weights";
  }
  if (base.engine) {
    return " is served by an engine of its own, which has to have its adapters itself";
  }
  if (base.block() > 1) {
    return " has tensor_parallel or pipeline_parallel; only models of one device have adapters";
  }
  return {};
}

/// The base's settings, with what the adapter says of itself.
ModelConfig merged(const ModelConfig& base, ModelConfig adapter) {
  ModelConfig model = base;
  model.adapters.clear();
  model.base = base.id;
  model.id = std::move(adapter.id);
  model.adapter = std::move(adapter.adapter);
  model.aliases = std::move(adapter.aliases);
  model.name = std::move(adapter.name);
  model.description = std::move(adapter.description);
  model.example = std::move(adapter.example);
  model.unlisted = adapter.unlisted;
  model.concurrency_limit = adapter.concurrency_limit;
  model.metadata = std::move(adapter.metadata);
  return model;
}

}  // namespace

void check_adapter_keys(Fields& f, const ModelConfig& model) {
  if (model.adapter.empty() != model.base.empty()) {
    f.reject(model.base.empty() ? "adapter" : "base",
             "an adapter has both `base`, the id of its model, and `adapter`, its directory");
  }
  for (const std::string_view key : kBaseKeys) {
    if (!model.adapter.empty() && f.has(key)) {
      f.reject(key, "an adapter runs in its base and has what that has; set it there");
    }
  }
}

void settle_adapters(Config& config, Diagnosis& diagnosis) {
  std::vector<ModelConfig> adapters;
  for (ModelConfig& model : config.models) {
    if (model.adapter.empty() || model.base.empty()) {
      continue;
    }
    const auto base = std::ranges::find_if(
        config.models, [&](const ModelConfig& one) { return is_called(one, model.base); });
    const bool known = base != config.models.end();
    const std::string trouble = known ? base_trouble(*base) : " is no model of this file";
    if (!trouble.empty()) {
      diagnosis.problems.push_back(diagnosis.origin + ": models." + model.id + ".base: \"" +
                                   model.base + "\"" + trouble);
      continue;
    }
    for (std::string& name : config.preload) {
      name = is_called(model, name) ? base->id : name;
    }
    model.base = base->id;
    adapters.push_back(model);
  }
  std::erase_if(config.models, [](const ModelConfig& model) { return !model.adapter.empty(); });
  for (ModelConfig& adapter : adapters) {
    const auto base = std::ranges::find(config.models, adapter.base, &ModelConfig::id);
    base->adapters.push_back(merged(*base, std::move(adapter)));
  }
}

}  // namespace heddle::config
