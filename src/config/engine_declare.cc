#include "config/engine_declare.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "config/presets.h"
#include "config/upstream.h"

namespace heddle::config {

namespace {

using spec::EngineKind;
using spec::SuspendLevel;
using Values = std::vector<std::pair<std::string, std::string>>;

constexpr std::array<std::string_view, 24> kEngineKeys{"cmdStop",
                                                       "args",
                                                       "container",
                                                       "env",
                                                       "checkEndpoint",
                                                       "useModelName",
                                                       "filters",
                                                       "device",
                                                       "memory",
                                                       "suspend",
                                                       "snapshot",
                                                       "probe",
                                                       "drain",
                                                       "directory",
                                                       "timeouts",
                                                       "unloadTimeout",
                                                       "start_timeout",
                                                       "resume_timeout",
                                                       "sendLoadingState",
                                                       "healthCheckTimeout",
                                                       "compat",
                                                       "macros",
                                                       "kv",
                                                       "kv_least"};
constexpr std::array<std::string_view, 9> kNativeKeys{"dtype",
                                                      "kv_cache_dtype",
                                                      "activation_dtype",
                                                      "experts",
                                                      "context",
                                                      "devices",
                                                      "tool_parser",
                                                      "reasoning_parser",
                                                      "pooling"};

/// The members of a JSON object, as JSON texts; nothing of anything else.
Values members(const std::string& json) {
  Values values;
  const auto parsed = nlohmann::ordered_json::parse(json, nullptr, false);
  if (parsed.is_object()) {
    for (const auto& [key, value] : parsed.items()) {
      values.emplace_back(
          key, value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
  }
  return values;
}

/// `model` is what requests are routed by: nothing may change it but useModelName.
void protect_model(Fields& f, std::string_view key, Values& values) {
  if (std::erase_if(values, [](const auto& entry) { return entry.first == "model"; }) > 0) {
    f.warn(key, "\"model\" cannot be set; use useModelName");
  }
}

void declare_filters(Fields& f, RequestFilters& filters, ModelConfig& model) {
  declare_body_filters(f, filters);
  Values by_id;
  f.values({"setParamsByID",
            "Likewise for requests that name the model so; the names become aliases of it."},
           by_id);
  for (const auto& [id, json] : by_id) {
    if (!json.starts_with('{')) {
      f.reject("setParamsByID", id + " is no map of keys to values");
    }
    Values values = members(json);
    protect_model(f, "setParamsByID", values);
    filters.set_params_by_id.emplace_back(id, std::move(values));
    if (id != model.id &&
        std::find(model.aliases.begin(), model.aliases.end(), id) == model.aliases.end()) {
      model.aliases.push_back(id);
    }
  }
}

void declare_command(Fields& f, EngineConfig& engine) {
  f.command({"cmd", "Command that starts an engine which serves the model."}, engine.command);
  f.command({"cmdStop", "Command that ends it; SIGTERM when absent. ${PID} is its process."},
            engine.stop_command);
  f.section({"container", "An image that is run instead of a command."}, [&](Fields& inner) {
    inner.text({"image", "Name of the image."}, engine.container.image);
    inner.require("image", "name the image to run");
    inner.text({"runtime", "Program that runs it: podman, or docker."}, engine.container.runtime);
    inner.command({"options", "Options of its run, before the image."}, engine.container.options);
    inner.command({"args", "Arguments after the image."}, engine.container.args);
  });
  std::vector<std::string> variables;
  f.texts({"env", "Variables of its environment, as NAME=value."}, variables);
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) {
      f.reject("env", "\"" + variable + "\" is not of the form NAME=value");
      continue;
    }
    engine.env.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  f.path({"directory", "Folder it is started in; that of this file when absent."},
         engine.directory);
}

void declare_address(Fields& f,
                     const SwapSettings& settings,
                     const std::string& id,
                     EngineConfig& engine) {
  std::string proxy;
  f.text({"proxy", "Where it listens; http://127.0.0.1:${PORT} when absent."}, proxy);
  const auto port = settings.ports.find(id);
  if (!proxy.empty()) {
    const Result<HttpAddress> url = parse_upstream(proxy);
    if (url) {
      engine.upstream = *url;
    } else {
      f.reject("proxy", url.error().message);
    }
  } else if (port != settings.ports.end()) {
    engine.upstream.port = port->second;
  }
  engine.health_path = preset(engine.kind).health_path;
  f.text({"checkEndpoint", "Path that answers 200 when it is ready; none asks nothing."},
         engine.health_path);
  if (engine.health_path == "none") {
    engine.health_path.clear();
  } else if (!engine.health_path.starts_with('/') ||
             engine.health_path.find_first_of(" \t\r\n#") != std::string::npos) {
    f.reject("checkEndpoint",
             "\"" + engine.health_path + "\" is no path; want such as /health, or none");
  }
  f.text({"useModelName", "What requests to it call the model."}, engine.served_name);
}

void declare_levels(Fields& f, EngineConfig& engine) {
  std::vector<std::string> names;
  f.texts({"suspend",
           "How it may give up its memory, cheapest first, of freeze, sleep, deep_sleep, reclaim, "
           "checkpoint and stop; what is measured to free too little is passed over."},
          names);
  for (const std::string& name : names) {
    const std::optional<SuspendLevel> level = spec::suspend_level(name);
    if (!level) {
      f.reject(
          "suspend",
          "\"" + name + "\" is not one of freeze, sleep, deep_sleep, reclaim, checkpoint, stop");
      continue;
    }
    if (!engine.suspend.empty() && engine.suspend.back() >= *level) {
      f.reject("suspend",
               "\"" + name +
                   "\" comes too late; the order, cheapest first, is freeze, "
                   "sleep, deep_sleep, reclaim, checkpoint, stop");
      continue;
    }
    const auto known = preset(engine.kind).sleep_levels;
    if (spec::sleeps(*level) && std::find(known.begin(), known.end(), *level) == known.end()) {
      const bool deep = *level == SuspendLevel::kDeepSleep;
      f.reject("suspend",
               "no call for " + name + " is known of an engine of kind " +
                   std::string(spec::name(engine.kind)) + "; " +
                   (deep ? "it takes engine: vllm, ollama, triton" : "set engine: vllm or sglang"));
    }
    engine.suspend.push_back(*level);
  }
  if (!names.empty() && (engine.suspend.empty() || engine.suspend.back() != SuspendLevel::kStop)) {
    engine.suspend.push_back(SuspendLevel::kStop);
  }
}

/// Elastic KV takes an engine that kvcached can be put into, and its shared memory.
void declare_kv(Fields& f, EngineConfig& engine) {
  auto elastic = static_cast<std::size_t>(engine.elastic_kv);
  f.choice({"kv",
            "elastic: its KV grows and shrinks with its load, beside memory; takes kvcached in its "
            "environment (vllm, sglang)."},
           {"fixed", "elastic"},
           elastic);
  engine.elastic_kv = elastic != 0;
  f.bytes({"kv_least", "Of elastic KV, what it always has; enough for its longest request."},
          engine.kv_least);
  if (!engine.elastic_kv) {
    if (f.has("kv_least")) {
      f.reject("kv_least", "is for kv: elastic");
    }
    return;
  }
  if (engine.kv_least == 0) {
    f.reject("kv_least", "is 0, of which kvcached takes no notice; want what one request needs");
  }
  if (engine.kind != EngineKind::kVllm && engine.kind != EngineKind::kSglang &&
      engine.kind != EngineKind::kGeneric) {
    f.reject("kv",
             "elastic is kvcached's, which is for vllm and sglang; an engine of kind " +
                 std::string(spec::name(engine.kind)) + " has none");
  }
  if (engine.command.empty() && !f.has("container") && f.has("proxy")) {
    f.reject("kv",
             "elastic takes an engine that is run here, by cmd, container, or engine and path");
  }
  const auto shares = [](const std::string& option) {
    return option.find("/dev/shm") != std::string::npos || option == "--ipc=host" ||
           option == "host" || option == "--ipc";
  };
  if (f.has("container") && std::ranges::none_of(engine.container.options, shares)) {
    f.reject("kv", "elastic takes shared memory: add --ipc=host to container.options");
  }
}

void declare_times(Fields& f, const SwapSettings& settings, EngineConfig& engine) {
  engine.start_timeout = settings.start_timeout > Duration{} ? settings.start_timeout
                                                             : preset(engine.kind).start_timeout;
  f.seconds({"healthCheckTimeout", "llama-swap's name of start_timeout."}, engine.start_timeout);
  f.seconds({"start_timeout", "From its start to its first healthy answer, at most."},
            engine.start_timeout);
  f.seconds({"resume_timeout", "From a resume to the right answer to the probe, at most."},
            engine.resume_timeout);
  engine.stop_timeout = settings.stop_timeout;
  Duration stop{};
  f.seconds({"unloadTimeout", "From SIGTERM or cmdStop to SIGKILL; 0 means the default."}, stop);
  engine.stop_timeout = stop > Duration{} ? stop : engine.stop_timeout;
  f.seconds({"drain", "How long its requests may go on before it is frozen with them."},
            engine.drain);
  f.section({"timeouts", "Of connections to it."}, [&](Fields& inner) {
    inner.seconds(
        {"responseHeader", "To the first byte of an answer; 0 means no limit of its own."},
        engine.response_timeout);
    inner.ignore({"connect", "tlsHandshake"},
                 "has no effect: engines are reached on this machine, without TLS");
    inner.ignore({"keepalive", "idleConn", "expectContinue"},
                 "has no effect: a connection is kept until the engine closes it");
  });
  require_positive(f, "healthCheckTimeout", engine.start_timeout);
  require_positive(f, "start_timeout", engine.start_timeout);
  require_positive(f, "resume_timeout", engine.resume_timeout);
}

/// A path of this machine becomes absolute; a name of a hub stays.
std::string checkpoint_path(const std::string& path, const std::string& directory) {
  const bool file = path.starts_with('/') || path.starts_with("./") || path.starts_with("../") ||
                    path.ends_with(".gguf");
  return file ? (std::filesystem::path(directory) / path).lexically_normal().string() : path;
}

/// Builds the command line of an engine that the file names by its kind and checkpoint only.
void build_command(Fields& f,
                   const std::vector<std::string>& args,
                   const std::string& directory,
                   const ModelConfig& model,
                   EngineConfig& engine) {
  if (!engine.command.empty() || f.has("container") || model.path.empty()) {
    if (f.has("args")) {
      f.reject("args", "go behind the command line that engine and path make; there is none");
    }
    if (!model.path.empty()) {
      f.reject("path", "the engine is told its model in cmd or container.args");
    }
    return;
  }
  if (engine.kind == EngineKind::kGeneric || engine.kind == EngineKind::kTriton) {
    f.reject("engine",
             "says not how it is started; give cmd, or one of vllm, sglang, "
             "llama-server, ollama, trtllm-serve");
    return;
  }
  engine.command = preset_command(
      engine.kind, checkpoint_path(model.path, directory), model.id, engine.upstream.port);
  engine.command.insert(engine.command.end(), args.begin(), args.end());
}

void declare_devices(Fields& f, EngineConfig& engine) {
  std::vector<std::string> names;
  f.texts({"device",
           "Name of the device whose memory it uses; a list of names for an engine that is on all "
           "of them at once."},
          names);
  if (names.empty()) {
    return;
  }
  engine.device = names.front();
  engine.further_devices.assign(names.begin() + 1, names.end());
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) {
      f.reject("device", "names \"" + *name + "\" twice");
      return;
    }
  }
}

}  // namespace

std::span<const std::string_view> native_keys() {
  return kNativeKeys;
}

void declare_body_filters(Fields& f, RequestFilters& filters) {
  std::vector<std::string> strip;
  f.texts({"strip_params", "Older name of stripParams."}, strip);
  f.texts({"stripParams", "Keys to leave out of requests; a list, or separated by commas."}, strip);
  for (const std::string& text : strip) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::size_t first = text.find_first_not_of(" \t", begin);
      const std::size_t last = text.find_last_not_of(" \t", end == 0 ? 0 : end - 1);
      if (first < end && last != std::string::npos && last >= first) {
        filters.strip_params.push_back(text.substr(first, last - first + 1));
      }
      begin = end + 1;
    }
  }
  std::sort(filters.strip_params.begin(), filters.strip_params.end());
  filters.strip_params.erase(std::unique(filters.strip_params.begin(), filters.strip_params.end()),
                             filters.strip_params.end());
  if (std::erase(filters.strip_params, "model") > 0) {
    f.warn("stripParams", "\"model\" is never left out");
  }
  f.values({"setParams", "Keys to set in requests, with their values."}, filters.set_params);
  protect_model(f, "setParams", filters.set_params);
}

void declare_engine_defaults(Fields& f, SwapSettings& settings) {
  std::int64_t start_port = 5800;
  f.integer({"startPort", "First of the ports that are given to models as ${PORT}."},
            {.least = 1, .most = 65535},
            start_port);
  Values macros;
  f.values({"macros", "Words that stand for others as ${NAME}, everywhere in this file."}, macros);
  f.seconds({"healthCheckTimeout", "What an engine may take to start."}, settings.start_timeout);
  f.seconds({"unloadTimeout", "What an engine may take to end."}, settings.stop_timeout);
  f.seconds({"globalTTL", "Of models that have no ttl of their own."}, settings.ttl);
  f.flag({"sendLoadingState", "Tell clients in the reasoning field that an engine is loading."},
         settings.loading_state);
}

void declare_engine(Fields& f, const SwapSettings& settings, ModelConfig& model) {
  const bool external = f.has("cmd") || f.has("proxy") || f.has("container") || f.has("engine");
  EngineConfig engine;
  declare_command(f, engine);
  std::vector<std::string> args;
  f.command({"args", "Further arguments of an engine that is started by its kind and path."}, args);
  auto kind = static_cast<std::size_t>(guess_kind(engine.command));
  f.choice({"engine", "What kind of engine serves the model; seen from cmd when absent."},
           {"generic", "vllm", "sglang", "llama-server", "ollama", "trtllm-serve", "triton"},
           kind);
  engine.kind = static_cast<EngineKind>(kind);
  declare_address(f, settings, model.id, engine);
  f.section({"filters", "Changes to requests before they go to the engine."},
            [&](Fields& inner) { declare_filters(inner, engine.filters, model); });
  declare_devices(f, engine);
  f.bytes({"memory", "What it holds of each of its devices while it runs; measured when absent."},
          engine.memory);
  declare_levels(f, engine);
  declare_kv(f, engine);
  auto snapshot = static_cast<std::size_t>(engine.snapshot);
  f.choice({"snapshot", "When it is first started, so that later it only has to be resumed."},
           {"on_first_use", "on_start"},
           snapshot);
  engine.snapshot = static_cast<SnapshotPolicy>(snapshot);
  f.flag({"probe", "Compare its answer to a fixed prompt after each resume."}, engine.probe);
  declare_times(f, settings, engine);
  engine.loading_state = settings.loading_state;
  f.flag({"sendLoadingState", "Tell clients in the reasoning field that it is loading."},
         engine.loading_state);
  Values macros;
  f.values({"macros", "Words that stand for others in this model."}, macros);
  f.ignore({"compat"}, "has no effect: no WebSockets are forwarded, which therefore load nothing");
  if (!external) {
    for (const std::string_view key : kEngineKeys) {
      if (key != "macros" && f.has(key)) {
        f.reject(key, "is for engines; this model has none of cmd, proxy, container and engine");
      }
    }
    return;
  }
  for (const std::string_view key : kNativeKeys) {
    if (f.has(key)) {
      f.reject(key, "is for models that heddle runs itself, not for engines");
    }
  }
  if (f.has("cmd") && f.has("container")) {
    f.reject("container", "cannot stand beside cmd");
  }
  build_command(f, args, settings.directory, model, engine);
  const bool told = engine.upstream.port > 0 && !settings.ports.contains(model.id);
  if (engine.command.empty() && !f.has("container") && !told) {
    f.reject("cmd", "is missing: say how the engine is started, or with proxy where it listens");
  }
  model.engine = std::move(engine);
}

}  // namespace heddle::config
