#include "cli/configured_models.h"

#include <algorithm>

#include "store/checkpoint.h"
#include "store/model_source.h"

namespace heddle::cli {
namespace {

constexpr const char* kEngine = "heddle";

struct Described {
  sim::ModelSpec spec{};
  bool packed = false;  ///< Its files have fewer than 16 bits a weight, or may have.
};

Result<Described> describe(const config::ModelConfig& model,
                           const store::ModelPlaces& places,
                           const sim::EngineProfile& engine) {
  if (model.engine) {
    return Error{.code = Code::kInvalidArgument,
                 .message =
                     "an external engine serves it, so its dimensions are not known; give "
                     "them with --models"};
  }
  const Result<std::filesystem::path> directory = store::find_model(model.path, places);
  if (!directory) {
    return directory.error();
  }
  Result<store::ModelConfig> files = store::read_model_config(*directory);
  if (!files) {
    return files.error();
  }
  files->model.kv = model.kv;
  const std::int64_t own = files->model.max_position;
  return Described{.spec = {.name = model.id,
                            .shape = sim::shape_of(files->model),
                            .engine = engine,
                            .tp = model.block(),
                            .max_sequences = model.batch,
                            .slo_ttft = model.slo.ttft,
                            .slo_tpot = model.slo.tpot,
                            .most_tokens = model.context > 0 ? std::min(model.context, own) : own},
                   .packed = directory->extension() == ".gguf" ||
                             files->quantisation.packing != spec::Packing::kNone};
}

}  // namespace

Result<ConfiguredRules> configured_rules(const std::string& file, const PerfData& perf) {
  const Result<config::Config> config = config::load_config(file);
  if (!config) {
    return config.error();
  }
  const auto engine =
      std::ranges::find(perf.engines, kEngine, &std::pair<std::string, sim::EngineProfile>::first);
  if (engine == perf.engines.end()) {
    return Error{.code = Code::kNotFound,
                 .message = std::string("engines.yaml has no \"") + kEngine +
                            "\", which serves the models of " + file};
  }
  const store::ModelPlaces places =
      store::find_places(config->directory, store::process_environment());
  ConfiguredRules made;
  for (const config::ModelConfig& model : config->models) {
    const Result<Described> described = describe(model, places, engine->second);
    if (!described) {
      made.notes.push_back(file + ": " + model.id + " is left out: " + described.error().message);
      continue;
    }
    const sim::ModelSpec& spec = described->spec;
    const bool stored = model.dtype == spec::DType::kStored;
    if (stored ? described->packed : model.dtype != spec::DType::kBf16) {
      made.notes.push_back(file + ": " + model.id + ": its weights are counted with 16 bits each");
    }
    made.rules.push_back({.label = model.id, .spec = spec});
    for (const std::string& alias : model.aliases) {
      made.rules.push_back({.label = alias, .spec = spec});
    }
    for (const config::ModelConfig& adapter : model.adapters) {
      made.rules.push_back({.label = adapter.id, .spec = spec});
    }
  }
  if (made.rules.empty()) {
    std::string all = file + ": has no model whose dimensions are known";
    for (const std::string& note : made.notes) {
      all += "\n" + note;
    }
    return Error{.code = Code::kInvalidArgument, .message = all};
  }
  return made;
}

}  // namespace heddle::cli
