// What of engines needs the whole file to be known: who displaces whom, on which device each is,
// and whether it can run there at all.

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "config/engine_declare.h"
#include "config/presets.h"
#include "config/upstream.h"

namespace heddle::config {

namespace {

constexpr std::string_view kMeasured = "has no effect: what a switch costs is measured";

void declare_groups(Fields& f, Config& config) {
  f.named_sections(
      {"groups", "Which engines may run together."}, [&](const std::string& name, Fields& item) {
        GroupConfig group{.name = name};
        item.flag({"swap", "One member at a time."}, group.swap);
        item.flag({"exclusive", "A member that comes displaces all other groups."},
                  group.exclusive);
        item.flag({"persistent", "Members are not displaced by other groups."}, group.persistent);
        item.texts({"members", "Ids of models."}, group.members);
        config.groups.push_back(std::move(group));
      });
}

/// Names of strings, out of a map whose values are JSON.
std::vector<std::pair<std::string, std::string>> strings(
    Fields& f, std::string_view key, const std::vector<std::pair<std::string, std::string>>& map) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [name, json] : map) {
    const auto value = nlohmann::json::parse(json, nullptr, false);
    if (value.is_string()) {
      texts.emplace_back(name, value.get<std::string>());
    } else if (value.is_primitive() && !value.is_null()) {
      texts.emplace_back(name, json);  // A model whose id looks like a number.
    } else {
      f.reject(key, name + " is no string");
    }
  }
  return texts;
}

void declare_matrix(Fields& f, Matrix& matrix) {
  std::vector<std::pair<std::string, std::string>> map;
  f.values({"vars", "Short names of models."}, map);
  matrix.vars = strings(f, "vars", map);
  map.clear();
  f.values({"sets", "Expressions such as (a | b) & c of models that may run together."}, map);
  matrix.sets = strings(f, "sets", map);
  f.ignore({"evict_costs"}, kMeasured);
}

void declare_scheduler(Fields& f, SwapSettings& settings) {
  f.section({"scheduler", "Which requests go first."}, [&settings](Fields& scheduler) {
    std::size_t use = 0;
    scheduler.choice({"use", "By the priorities of models, then as they came."}, {"fifo"}, use);
    scheduler.section({"settings", "Of it."}, [&settings](Fields& inner) {
      inner.section({"fifo", "Of the only one."}, [&settings](Fields& fifo) {
        fifo.values({"priority",
                     "Models by id or alias, to numbers: requests for those of larger ones go "
                     "first. 0 for others."},
                    settings.priorities);
      });
    });
  });
}

/// Gives models the priorities that the scheduler's settings have; ours are the other way round.
void settle_priorities(Config& config, const SwapSettings& settings, Diagnosis& diagnosis) {
  constexpr std::int32_t kMost = 1000;
  for (const auto& [name, json] : settings.priorities) {
    const auto number = nlohmann::json::parse(json, nullptr, false);
    const std::string where =
        diagnosis.origin + ": routing.scheduler.settings.fifo.priority." + name + ": ";
    if (!number.is_number_integer() || number > kMost || number < -kMost) {
      diagnosis.problems.push_back(where + "is " + json + "; want a whole number, -1000 to 1000");
      continue;
    }
    const auto found = std::ranges::find_if(config.models, [&name](const ModelConfig& model) {
      return model.id == name || std::ranges::find(model.aliases, name) != model.aliases.end();
    });
    if (found == config.models.end()) {
      diagnosis.warnings.push_back(where + "\"" + name + "\" is no model; it is left out");
      continue;
    }
    found->priority = -number.get<std::int32_t>();
    for (ModelConfig& adapter : found->adapters) {
      adapter.priority = found->priority;
    }
  }
}

void declare_routing(Fields& f, Config& config, SwapSettings& settings) {
  f.section({"routing", "Which engines may run together."}, [&](Fields& routing) {
    routing.section({"router", "How that is told."}, [&](Fields& router) {
      std::size_t use = 0;
      router.choice({"use", "By groups, or by a matrix."}, {"group", "matrix"}, use);
      router.section({"settings", "Of both."}, [&](Fields& both) {
        Config unused;
        Matrix other;
        declare_groups(both, use == 0 ? config : unused);
        both.section({"matrix", "Sets of engines that may run together."}, [&](Fields& inner) {
          declare_matrix(inner, use == 1 ? settings.matrix : other);
          settings.use_matrix = use == 1;
        });
      });
      if (use == 1 && !settings.use_matrix) {
        router.reject("use", "is matrix, but settings.matrix is missing");
      }
    });
    declare_scheduler(routing, settings);
  });
}

std::string device_names(const Config& config) {
  std::string names;
  for (const DeviceConfig& device : config.devices) {
    names += (names.empty() ? "" : ", ") + device.name;
  }
  return names;
}

/// The device an engine is on; null, with the reason, when that cannot be told.
const DeviceConfig* device_of(const Config& config,
                              const EngineConfig& engine,
                              std::string& trouble) {
  const DeviceConfig* found = nullptr;
  int externals = 0;
  for (const DeviceConfig& device : config.devices) {
    if (device.name == engine.device) {
      return &device;
    }
    const bool external = device.kind == DeviceKind::kExternal;
    externals += external ? 1 : 0;
    if (external || config.devices.size() == 1) {
      found = &device;
    }
  }
  if (!engine.device.empty()) {
    trouble = "device: there is no \"" + engine.device + "\"; there are: " + device_names(config);
    return nullptr;
  }
  if (found == nullptr || externals > 1) {
    trouble = "device: is missing: name one of " + device_names(config);
    return nullptr;
  }
  return found;
}

bool has_gpus(const Config& config) {
  return std::any_of(config.devices.begin(), config.devices.end(), [](const DeviceConfig& device) {
    return device.kind == DeviceKind::kCuda;
  });
}

/// The devices an engine is on, in their order in the file; none, with the reason, when that cannot
/// be told.
std::vector<const DeviceConfig*> devices_of(const Config& config,
                                            const EngineConfig& engine,
                                            std::string& trouble) {
  std::vector<const DeviceConfig*> all;
  std::vector<std::string> names{engine.device};
  names.insert(names.end(), engine.further_devices.begin(), engine.further_devices.end());
  for (const std::string& name : names) {
    EngineConfig one = engine;
    one.device = name;
    const DeviceConfig* found = device_of(config, one, trouble);
    if (found == nullptr) {
      return {};
    }
    all.push_back(found);
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// What keeps an engine from being on several devices at once; empty: nothing.
std::string several_trouble(const EngineConfig& engine,
                            const std::vector<const DeviceConfig*>& devices) {
  if (devices.size() <= 1) {
    return {};
  }
  const DeviceConfig& first = *devices.front();
  for (const DeviceConfig* device : devices) {
    if (device->kind != first.kind) {
      return "device: " + first.name + " and " + device->name +
             " are of different kinds; name devices of one kind";
    }
  }
  if (engine.elastic_kv) {
    return "device: an engine with elastic KV is on one device, and this one names " +
           std::to_string(devices.size());
  }
  const bool ours = !engine.command.empty() || !engine.container.image.empty();
  if (ours && engine.memory == 0) {
    return "memory: is missing: say what the engine needs of each of its devices";
  }
  return {};
}

/// What keeps an engine from ever running on its device; empty: nothing.
std::string fit_trouble(const EngineConfig& engine, const DeviceConfig& device) {
  const std::uint64_t least = engine.elastic_kv ? engine.kv_least : 0;
  if (engine.memory > device.memory || least > device.memory - engine.memory) {
    return "memory: " + format_bytes(engine.memory) +
           (least > 0 ? " and kv_least " + format_bytes(least) : std::string()) +
           " can never fit: the device " + device.name + " has " + format_bytes(device.memory);
  }
  if (least > 0 && engine.memory == 0) {
    return "memory: is missing: say what the engine needs of the device " + device.name +
           " without KV, which is elastic";
  }
  const bool ours = !engine.command.empty() || !engine.container.image.empty();
  for (const spec::SuspendLevel level : engine.suspend) {
    if (!ours && !spec::sleeps(level) && level != spec::SuspendLevel::kStop) {
      return "suspend: " + std::string(spec::name(level)) +
             " takes an engine that is run here, by cmd or container";
    }
  }
  if (ours && engine.memory == 0 && runs_models(device)) {
    return "memory: is missing: say what the engine needs of the device " + device.name +
           ", whose memory other models use too";
  }
  return {};
}

/// Programs that are named with a folder are meant from the engine's own.
void find_programs(EngineConfig& engine) {
  for (std::vector<std::string>* command : {&engine.command, &engine.stop_command}) {
    if (!command->empty() && command->front().find('/') != std::string::npos) {
      const std::filesystem::path folder(engine.directory);
      command->front() = (folder / command->front()).lexically_normal().string();
    }
  }
}

bool displaces(const ModelConfig& a, const ModelConfig& b) {
  return std::binary_search(a.displaces.begin(), a.displaces.end(), b.id);
}

/// Whether `a` starts a server of its own on a port of this machine.
bool listens_here(const ModelConfig& model) {
  return model.engine && is_local(model.engine->upstream) &&
         !(model.engine->command.empty() && model.engine->container.image.empty());
}

/// `here`: engines run where heddle listens.
void check_ports(const Config& config, bool here, Diagnosis& diagnosis) {
  const auto reject = [&](const ModelConfig& model, const std::string& problem) {
    diagnosis.problems.push_back(diagnosis.origin + ": models." + model.id + ": port " +
                                 std::to_string(model.engine->upstream.port) + " " + problem);
  };
  for (std::size_t i = 0; i < config.models.size(); ++i) {
    const ModelConfig& model = config.models[i];
    if (!model.engine || !is_local(model.engine->upstream)) {
      continue;
    }
    for (const ListenAddress& address : config.listen) {
      if (here && address.port == model.engine->upstream.port) {
        reject(model, "is the one that heddle itself listens on; choose another");
        break;
      }
    }
    for (std::size_t j = 0; j < i; ++j) {
      const ModelConfig& other = config.models[j];
      if (listens_here(model) && listens_here(other) &&
          model.engine->upstream.port == other.engine->upstream.port &&
          !(displaces(model, other) && displaces(other, model))) {
        reject(model,
               "is also that of " + other.id +
                   ", and both may run at once; use ${PORT}, or a group that swaps");
      }
    }
  }
}

/// Warns of what is allowed but cannot work as hoped.
void warn_of(const ModelConfig& model, const Ports& ports, Diagnosis& diagnosis) {
  const EngineConfig& engine = *model.engine;
  const auto warn = [&](const std::string& warning) {
    diagnosis.warnings.push_back(diagnosis.origin + ": models." + model.id + ": " + warning);
  };
  const auto mentions = [](const std::vector<std::string>& words, const std::string& text) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.find(text) != std::string::npos;
    });
  };
  const std::string port = std::to_string(engine.upstream.port);
  const bool told = mentions(engine.command, port) || mentions(engine.container.args, port) ||
                    mentions(engine.container.options, port) ||
                    std::any_of(engine.env.begin(), engine.env.end(), [&](const auto& entry) {
                      return entry.second.find(port) != std::string::npos;
                    });
  if (ports.contains(model.id) && !told) {
    warn("its command does not name port " + port +
         ", where it is expected: put ${PORT} into cmd, "
         "or set proxy");
  }
  const bool sleeps = std::any_of(engine.suspend.begin(), engine.suspend.end(), spec::sleeps);
  const bool ours = !engine.command.empty() || !engine.container.image.empty();
  for (const std::string_view each : preset(engine.kind).sleep_flags) {
    const std::string flag(each);
    if (sleeps && ours && !mentions(engine.command, flag) &&
        !mentions(engine.container.args, flag) && !has_argument(engine.command, flag) &&
        !has_argument(engine.container.args, flag)) {
      warn("suspend: sleep takes the argument " + flag + ", which is missing");
    }
  }
}

EngineMemory memory_of(const DeviceConfig* device) {
  if (device == nullptr || device->kind == DeviceKind::kExternal) {
    return EngineMemory::kCounted;
  }
  return device->kind == DeviceKind::kCpu ? EngineMemory::kHost : EngineMemory::kGpu;
}

}  // namespace

void declare_swapping(Fields& f, Config& config, SwapSettings& settings) {
  declare_routing(f, config, settings);
  const bool routed = !config.groups.empty() || settings.use_matrix;
  declare_groups(f, config);
  f.section({"matrix", "Sets of engines that may run together."}, [&](Fields& inner) {
    declare_matrix(inner, settings.matrix);
    settings.use_matrix = true;
  });
  if (routed && (f.has("groups") || f.has("matrix"))) {
    f.reject("routing", "says what groups or matrix say as well; keep one of them");
  }
  if (f.has("groups") && f.has("matrix")) {
    f.reject("matrix", "cannot stand beside groups");
  }
  f.section({"hooks", "What is done when."}, [&](Fields& hooks) {
    hooks.section({"on_startup", "When the server starts."}, [&](Fields& start) {
      start.texts({"preload", "Models to load, by id or alias."}, config.preload);
    });
  });
}

void settle_engines(Config& config) {
  for (ModelConfig& model : config.models) {
    if (!model.engine) {
      continue;
    }
    EngineConfig& engine = *model.engine;
    const std::vector<const DeviceConfig*> devices = devices_of(config, engine, engine.misfit);
    const DeviceConfig* device = devices.empty() ? nullptr : devices.front();
    if (device != nullptr) {
      engine.device = device->name;
      engine.further_devices.clear();
      engine.misfit = several_trouble(engine, devices);
      for (const DeviceConfig* each : devices) {
        if (each != device) {
          engine.further_devices.push_back(each->name);
        }
        engine.misfit = engine.misfit.empty() ? fit_trouble(engine, *each) : engine.misfit;
      }
      if (engine.misfit.empty() && device->kind == DeviceKind::kCpu && has_gpus(config)) {
        engine.misfit =
            "device: " + device->name +
            " cannot lend its memory, which is pinned for the GPUs; give the engine a device of "
            "kind external, with memory that no other device has";
      }
    }
    apply_preset(engine, model.path, model.id, memory_of(device));
  }
}

void complete_engines(Config& config,
                      const SwapSettings& settings,
                      EnginePlaces places,
                      Diagnosis& diagnosis) {
  const bool here = places == EnginePlaces::kHere;
  for (ModelConfig& model : config.models) {
    if (model.engine) {
      if (model.engine->directory.empty()) {
        model.engine->directory = config.directory;
      }
      find_programs(*model.engine);
    }
  }
  if (here) {
    settle_engines(config);
  }
  for (ModelConfig& model : config.models) {
    if (!model.engine || !here) {
      continue;
    }
    // Nobody starts without an engine that fits.
    const std::string misfit = std::exchange(model.engine->misfit, {});
    if (!misfit.empty()) {
      diagnosis.problems.push_back(diagnosis.origin + ": models." + model.id + "." + misfit);
    }
    warn_of(model, settings.ports, diagnosis);
  }
  if (settings.use_matrix) {
    resolve_matrix(settings.matrix, config, diagnosis);
  } else {
    resolve_groups(config, diagnosis);
  }
  check_ports(config, here, diagnosis);
  settle_priorities(config, settings, diagnosis);
  std::vector<std::string> preload;
  for (const std::string& name : config.preload) {
    const auto found =
        std::find_if(config.models.begin(), config.models.end(), [&](const ModelConfig& model) {
          return model.id == name ||
                 std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
        });
    if (found == config.models.end()) {
      diagnosis.warnings.push_back(diagnosis.origin + ": hooks.on_startup.preload: \"" + name +
                                   "\" is no model; it is left out");
    } else {
      preload.push_back(found->id);
    }
  }
  config.preload = std::move(preload);
}

}  // namespace heddle::config
