#include "config/adapters.h"

#include <algorithm>
#include <array>
#include <filesystem>
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
                                                            "activation_dtype",
                                                            "pin",
                                                            "ttl",
                                                            "min_residence",
                                                            "slo",
                                                            "batch",
                                                            "devices",
                                                            "adapter_rank",
                                                            "tensor_parallel",
                                                            "pipeline_parallel",
                                                            "cold_start_hosts",
                                                            "experts",
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
  model.adapter_rank = 0;
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

/// What a model, alias, adapter or peer's model is called already; empty: nothing is.
std::string who_is_called(const Config& config, const std::string& name) {
  for (const ModelConfig& model : config.models) {
    if (is_called(model, name)) {
      return "the model " + model.id;
    }
    for (const ModelConfig& adapter : model.adapters) {
      if (is_called(adapter, name)) {
        return "the adapter " + adapter.id + " of " + model.id;
      }
    }
  }
  for (const PeerConfig& peer : config.peers) {
    if (std::ranges::find(peer.models, name) != peer.models.end()) {
      return "a model of the peer " + peer.name;
    }
  }
  return {};
}

/// Whether it can be said in a URL, a header and a line of the log as it is.
bool is_name(const std::string& name) {
  constexpr std::size_t kLongest = 256;
  constexpr std::string_view kSigns = "-._:/@+";
  return !name.empty() && name.size() <= kLongest && std::ranges::all_of(name, [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || kSigns.find(c) != std::string_view::npos;
  });
}

Error refused(std::string message) {
  return Error{.code = Code::kInvalidArgument, .message = std::move(message)};
}

/// The model of that name; where none is named, the only one that has room for adapters.
Result<ModelConfig*> base_of(Config& config, const std::string& named) {
  std::string able;
  ModelConfig* only = nullptr;
  for (ModelConfig& model : config.models) {
    if (named.empty() && base_trouble(model).empty() &&
        (model.adapter_rank > 0 || !model.adapters.empty())) {
      able += (able.empty() ? "" : ", ") + model.id;
      only = &model;
    }
    if (!named.empty() && is_called(model, named)) {
      const std::string trouble = base_trouble(model);
      return trouble.empty() ? Result<ModelConfig*>(&model)
                             : refused("base_model_name: \"" + named + "\"" + trouble);
    }
  }
  if (!named.empty()) {
    return Error{.code = Code::kNotFound, .message = "base_model_name: no model \"" + named + "\""};
  }
  if (only == nullptr) {
    return refused("no model has room for adapters: give one an adapter_rank");
  }
  return able == only->id ? Result<ModelConfig*>(only)
                          : refused("base_model_name is missing; these have room: " + able);
}

}  // namespace

Result<std::string> add_adapter(Config& config, const LoadedAdapter& adapter) {
  if (!is_name(adapter.name)) {
    return refused(
        "lora_name: want 1 to 256 letters, digits or any of -._:/@+, as requests name it");
  }
  if (const std::string who = who_is_called(config, adapter.name); !who.empty()) {
    return refused("lora_name: \"" + adapter.name + "\" is " + who + " already");
  }
  const Result<ModelConfig*> base = base_of(config, adapter.base);
  if (!base) {
    return base.error();
  }
  ModelConfig model{.id = adapter.name};
  model.adapter = adapter.directory;
  (*base)->adapters.push_back(merged(**base, std::move(model)));
  return (*base)->id;
}

void declare_adapter(Fields& f, ModelConfig& model) {
  constexpr std::int64_t kMostRank = 512;
  f.text(
      {"adapter",
       "A LoRA adapter of another model: a directory of PEFT, or a hub id that is in the cache."},
      model.adapter);
  f.text({"base", "Of an adapter: the id of the model that it changes, whose settings it has."},
         model.base);
  f.integer(
      {"adapter_rank",
       "Rank of the largest LoRA adapter that there is room for from the start; those of this "
       "file have room anyway."},
      {.least = 0, .most = kMostRank},
      model.adapter_rank);
}

void declare_adapters(Fields& f, Config& config) {
  std::vector<std::string>& folders = config.adapters.directories;
  f.section({"adapters", "LoRA adapters that are loaded while the server runs."},
            [&](Fields& adapters) {
              adapters.texts({"directories",
                              "Folders whose LoRA adapters administrators may load while the "
                              "server runs, by /v1/load_lora_adapter. None: none can be."},
                             folders);
              if (std::ranges::find(folders, std::string()) != folders.end()) {
                adapters.reject("directories", "an empty name; want a folder: /srv/adapters");
              }
            });
  for (std::string& folder : folders) {
    folder = (std::filesystem::path(config.directory) / folder).lexically_normal().string();
  }
}

void check_adapter_keys(Fields& f, const ModelConfig& model) {
  if (model.adapter.empty() != model.base.empty()) {
    f.reject(model.base.empty() ? "adapter" : "base",
             "an adapter has both `base`, the id of its model, and `adapter`, its directory");
  }
  if (const std::string trouble = base_trouble(model);
      model.adapter_rank > 0 && !trouble.empty() && model.adapter.empty()) {
    f.reject("adapter_rank", "this model" + trouble);
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
