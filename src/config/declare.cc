#include "config/declare.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "config/access.h"
#include "config/adapters.h"
#include "config/capabilities.h"
#include "config/cluster.h"
#include "config/model_parts.h"
#include "config/model_types.h"
#include "config/path_patterns.h"
#include "config/peers.h"
#include "config/selectors.h"
#include "config/tracing.h"
#include "spec/json_writer.h"

namespace heddle::config {
namespace {

constexpr int kCoresMax = 4096;
constexpr std::int64_t kMostStepTokens = 16384;
constexpr std::int64_t kBatchLinesMost = 256;
constexpr std::uint64_t kHeaderMax = 16U << 20U;

std::optional<int> small_number(std::string_view text, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 && number <= most ? std::optional(number) : std::nullopt;
}

Error invalid(std::string message) {
  return {.code = Code::kInvalidArgument, .message = std::move(message)};
}

void declare(Fields& f, Limits& limits) {
  f.bytes({"body", "Largest request body."}, limits.body);
  f.bytes({"header", "Largest request line and headers together."}, limits.header);
  if (limits.header > kHeaderMax) {
    f.reject("header", "want at most 16MiB");
  }
  f.integer({"connections", "Connections open at once."}, {.least = 1}, limits.connections);
  f.integer({"connections_per_client",
             "Connections with a request of one client at once: of a key, or of an address without "
             "one. 0 means three quarters of connections."},
            {.least = 0},
            limits.connections_per_client);
  f.integer({"queue", "Requests per model, waiting and running; more get status 429."},
            {.least = 1},
            limits.queue);
  f.duration({"request_timeout", "From a request's arrival to its last token."},
             limits.request_timeout);
  f.duration({"load_timeout",
              "How long a request waits at most for its model; where absent, not less than an "
              "engine's start_timeout."},
             limits.load_timeout);
  limits.load_timeout_given = f.has("load_timeout");
  f.duration({"idle_timeout", "How long a connection stays open between requests."},
             limits.idle_timeout);
  f.duration({"header_timeout", "How long a client may take to send a request."},
             limits.header_timeout);
  f.duration({"stall_timeout", "How long a client may take none of its answer."},
             limits.stall_timeout);
}

void declare(Fields& f, BatchesConfig& batches) {
  f.bytes({"disk", "What files of batches may have in dataDir, those of all clients together."},
          batches.disk);
  f.integer({"at_once", "Lines of batches that run at once."},
            {.least = 1, .most = kBatchLinesMost},
            batches.at_once);
  f.duration({"quiet",
              "A model is loaded for a batch only where nobody has used the models of a device for "
              "so long."},
             batches.quiet);
}

/// "45%" as 45.
std::optional<int> percent(const std::string& text) {
  return text.ends_with('%') ? small_number(std::string_view(text).substr(0, text.size() - 1), 100)
                             : std::nullopt;
}

void declare_prefix_cache(Fields& f, DeviceConfig& device) {
  std::string text;
  f.text({"prefix_cache",
          "Most that cached prefixes may have of the memory that models leave to KV, such as 50%; "
          "they give way to whatever else needs it. 100% when absent; off caches none."},
         text);
  if (text.empty()) {
    return;
  }
  const std::optional<int> share = text == "off" ? std::optional(0) : percent(text);
  if (!share) {
    f.reject("prefix_cache", "is \"" + text + "\"; want off, or a share such as 50%");
    return;
  }
  device.prefix_cache = *share;
}

/// Refuses keys that mean nothing for a device of this kind.
void reject_others(Fields& f, const std::vector<std::string_view>& keys, const std::string& why) {
  for (const std::string_view key : keys) {
    if (f.has(key)) {
      f.reject(key, why);
    }
  }
}

void declare_kind(Fields& f, DeviceConfig& device) {
  std::size_t kind = 0;
  f.choice(
      {"kind",
       "cpu: cores and memory of this machine; external: memory that only engines use; cuda: a "
       "GPU of NVIDIA's."},
      {"cpu", "external", "cuda"},
      kind);
  device.kind = static_cast<DeviceKind>(kind);
  std::int64_t gpu = -1;
  f.integer({"gpu", "The driver's number of the GPU; counted from 0 when absent."},
            {.least = -1, .most = 255},
            gpu);
  device.gpu = static_cast<int>(gpu);
  if (device.kind != DeviceKind::kCuda) {
    reject_others(f, {"gpu"}, "is for devices of kind cuda");
    f.require("memory", "say how much memory the device may use, such as 64MiB");
  } else {
    reject_others(f, {"cores", "load_bandwidth", "copy"}, "is for a CPU that acts as a device");
    device.copy = true;
  }
  if (device.kind == DeviceKind::kExternal) {
    reject_others(f,
                  {"cores", "load_bandwidth", "copy", "pace", "step_budget", "prefix_cache"},
                  "is for devices that heddle runs models on, not for an external one");
    device.page = 0;
  }
}

void declare(Fields& f, DeviceConfig& device) {
  f.text({"name", "What metrics and listings call the device."}, device.name);
  declare_kind(f, device);
  std::vector<std::string> cores;
  f.texts({"cores", "CPU numbers such as \"0-3,6\"; all when absent."}, cores);
  for (const std::string& part : cores) {
    const Result<std::vector<int>> parsed = parse_cores(part);
    if (!parsed) {
      f.reject("cores", parsed.error().message);
      break;
    }
    device.cores.insert(device.cores.end(), parsed->begin(), parsed->end());
  }
  std::sort(device.cores.begin(), device.cores.end());
  device.cores.erase(std::unique(device.cores.begin(), device.cores.end()), device.cores.end());
  f.bytes({"memory",
           "Memory for weights, KV cache and workspace. Of a GPU, nine tenths of it when absent."},
          device.memory);
  f.bytes({"page", "Size of a page, a power of two; the same for all devices."}, device.page);
  f.rate({"load_bandwidth", "Emulates a link of this speed from host memory; implies copy."},
         device.load_bandwidth);
  device.copy = device.copy || device.load_bandwidth > 0;
  f.flag({"copy", "Copy weights to the device, as a discrete device must."}, device.copy);
  if (device.load_bandwidth > 0 && !device.copy) {
    f.reject("copy", "false contradicts load_bandwidth, which paces the copy");
  }
  f.section({"pace", "Makes the device act slower than it is."}, [&](Fields& pace) {
    pace.duration({"step", "A step takes at least this long."}, device.pace.step);
    pace.duration({"token", "And this for each of its tokens."}, device.pace.token);
    pace.duration({"context", "And this for each position whose KV it reads."},
                  device.pace.context);
  });
  f.duration({"step_budget", "What one engine step should take at most."}, device.step_budget);
  require_positive(f, "step_budget", device.step_budget);
  declare_prefix_cache(f, device);
}

void declare_slo(Fields& f, ModelConfig& model) {
  f.section({"slo", "How fast answers are to come; what is absent follows from how fast they are."},
            [&](Fields& slo) {
              slo.duration({"ttft", "From a request's arrival to its first token."},
                           model.slo.ttft);
              slo.duration({"tpot", "From one token to the next, on average."}, model.slo.tpot);
              require_positive(slo, "ttft", model.slo.ttft);
              require_positive(slo, "tpot", model.slo.tpot);
            });
}

/// What the gateway shows of a model, and does with requests for it.
void declare_listing(Fields& f, ModelConfig& model) {
  std::vector<std::pair<std::string, std::string>> metadata;
  f.values({"metadata", "Anything, shown as it is where models are listed."}, metadata);
  if (!metadata.empty()) {
    spec::JsonWriter json;
    json.begin_object();
    for (const auto& [key, value] : metadata) {
      json.key(key).json(value);
    }
    model.metadata = std::move(json.end_object()).take();
  }
  declare_capabilities(f, model.capabilities);
  f.integer({"concurrencyLimit", "Requests at once; more get status 429. 0 means limits.queue."},
            {.least = 0},
            model.concurrency_limit);
}

void declare(Fields& f, const SwapSettings& settings, ModelConfig& model) {
  f.text(
      {"path", "A directory with a checkpoint, a GGUF file, or a model that heddle pull fetches."},
      model.path);
  declare_adapter(f, model);
  f.require_one({"path", "cmd", "proxy", "container", "adapter"},
                "name a directory, a GGUF file or a Hugging Face model id, or an engine: cmd, "
                "proxy or container; or a base and an adapter of it");
  declare_types(f, model);
  f.texts({"aliases", "Further names of the model."}, model.aliases);
  f.text({"name", "Name for people."}, model.name);
  f.text({"description", "Description for people."}, model.description);
  f.text({"example", "A prompt to try, shown when the server starts."}, model.example);
  f.flag({"pin", "Never evict the model once it is loaded."}, model.pin);
  f.flag({"unlisted", "Serve the model but leave it out of listings."}, model.unlisted);
  model.ttl = settings.ttl;
  f.seconds({"ttl", "Unload after being idle for so long; 0 means never."}, model.ttl);
  f.duration({"min_residence", "Do not evict sooner than this after loading."},
             model.min_residence);
  declare_slo(f, model);
  f.integer({"batch", "Requests at once that one device should bear; with more it gets another."},
            {.least = 1},
            model.batch);
  f.texts({"devices", "Names of the devices that it may run on; all when absent."}, model.devices);
  declare_parts(f, model);
  f.integer({"context", "Cap of the context length in tokens; 0 means the model's own."},
            {.least = 0},
            model.context);
  auto tools = static_cast<std::size_t>(model.tool_parser);
  f.choice({"tool_parser", "How the model spells calls of tools; auto asks its chat template."},
           {"auto", "none", "hermes", "llama3_json", "mistral"},
           tools);
  model.tool_parser = static_cast<ToolParser>(tools);
  auto reasoning = static_cast<std::size_t>(model.reasoning_parser);
  f.choice({"reasoning_parser", "How the model marks what it thinks; auto asks its chat template."},
           {"auto", "none", "think"},
           reasoning);
  model.reasoning_parser = static_cast<ReasoningParser>(reasoning);
  auto pooling = static_cast<std::size_t>(model.pooling);
  f.choice(
      {"pooling", "Which hidden states are a text's embedding; auto asks 1_Pooling/config.json."},
      {"auto", "last", "mean"},
      pooling);
  model.pooling = static_cast<Pooling>(pooling);
  declare_listing(f, model);
  declare_engine(f, settings, model);
  check_adapter_keys(f, model);
}

/// Policies of one system each, for comparison; heddle is all of them.
PlannerConfig planner_of(std::size_t policy) {
  const PlannerConfig reactive{.queue = QueueOrder::kArrival,
                               .prewarm = false,
                               .value = false,
                               .pressure = false,
                               .replicas = false};
  PlannerConfig planner;
  switch (policy) {
    case 1:
      return reactive;
    case 2:  // ServerlessLLM as WarmServe compares with it: whole devices, no forecast.
      planner = reactive;
      planner.replicas = true;
      planner.share = false;
      return planner;
    case 3:  // MuxServe as Prism compares with it: placed once, KV shared as it comes.
      planner = reactive;
      planner.evict = false;
      return planner;
    case 4:  // A fixed part of a device for each of its models.
      planner = reactive;
      planner.evict = false;
      planner.kv = KvSharing::kStatic;
      return planner;
    default:
      return planner;
  }
}

void declare(Fields& f, PlannerConfig& planner) {
  std::size_t policy = 0;
  f.choice({"policy", "A set of the switches below: heddle sets all, reactive none."},
           {"heddle", "reactive", "sllm-gpu", "muxserve++", "static"},
           policy);
  planner = planner_of(policy);
  auto queue = static_cast<std::size_t>(planner.queue);
  f.choice({"queue",
            "Which waiting prompts a device takes up first: so that most first tokens come in time "
            "(deadline), or as they came (arrival)."},
           {"deadline", "arrival"},
           queue);
  planner.queue = static_cast<QueueOrder>(queue);
  auto kv = static_cast<std::size_t>(planner.kv);
  f.choice({"kv",
            "Whether the models of a device lend each other memory for KV (elastic), or each has "
            "an equal part of the device (static)."},
           {"elastic", "static"},
           kv);
  planner.kv = static_cast<KvSharing>(kv);
  f.flag({"prewarm", "Load models before they are asked for, by forecast."}, planner.prewarm);
  f.flag(
      {"forecast",
       "Expect what the best of several forecasts says, from earlier days and from what has just "
       "been; else what was in the window before."},
      planner.forecast);
  f.flag({"value",
          "Put models where least is lost, and evict the idle one that is worth least; else where "
          "most memory is free, and the one used longest ago."},
         planner.value);
  f.flag({"pressure",
          "Place models, and move them, where there is most memory for their KV, and give those "
          "another device whose requests wait for memory."},
         planner.pressure);
  f.flag({"weave",
          "Keep KV of models that lack memory on devices that have some to spare, which run their "
          "part of attention; between devices of CPUs, or GPUs that reach each other."},
         planner.weave);
  std::string share = std::to_string(planner.weave_share) + "%";
  f.text({"weave_share", "Most of a model's KV that may be on another device, to 50%."}, share);
  const std::optional<int> most = percent(share);
  if (!most || *most < 1 || *most > PlannerConfig{}.weave_share) {
    f.reject("weave_share", "is \"" + share + "\"; want a share of 1% to 50%");
  }
  planner.weave_share = most.value_or(planner.weave_share);
  f.flag({"replicas", "Give a model with more load than a device should bear another."},
         planner.replicas);
  f.flag({"share", "Let several models run on one device at once."}, planner.share);
  f.flag({"share_groups", "Let other models run on the devices of sharded ones."},
         planner.share_groups);
  f.flag({"evict", "Evict models to make room for others."}, planner.evict);
  f.duration({"drain_after",
              "How long a request waits for its model before busy models are drained for it."},
             planner.drain_after);
  f.duration(
      {"turn",
       "How long a busy model goes on with its requests once it is drained for another; then "
       "they are set aside until its next turn. 0: until they end."},
      planner.turn);
  f.duration({"period", "How often to look ahead."}, planner.period);
  require_positive(f, "period", planner.period);
  f.duration({"window", "Length of the windows that load is forecast for."}, planner.window);
  f.duration({"day", "After how long load is expected to come again."}, planner.day);
  if (planner.window <= Duration{} || planner.day <= Duration{} ||
      planner.day % planner.window != Duration{}) {
    f.reject("window", "must divide a day (`day`, unless it is set 24h), such as 5m");
    planner.window = PlannerConfig{}.window;
    planner.day = PlannerConfig{}.day;
  }
}

void declare_logging(Fields& f, Config& config) {
  std::size_t level = static_cast<std::size_t>(config.log_level);
  f.choice({"logLevel", "Least important messages that are logged."},
           {"debug", "info", "warn", "error"},
           level);
  config.log_level = static_cast<log::Level>(level);
  std::size_t format = static_cast<std::size_t>(config.log_format);
  f.choice({"logFormat", "How log lines look."}, {"text", "json"}, format);
  config.log_format = static_cast<log::Format>(format);
}

void declare_listen(Fields& f, Config& config) {
  std::vector<std::string> listen;
  f.texts({"listen",
           "Addresses to serve on, such as 127.0.0.1:8080; with http:// before it one stays plain "
           "where there is tls."},
          listen);
  if (!listen.empty()) {
    config.listen.clear();
  }
  for (const std::string& text : listen) {
    const Result<ListenAddress> address = parse_listen(text);
    if (!address) {
      f.reject("listen", address.error().message);
      continue;
    }
    config.listen.push_back(*address);
  }
}

void declare_tls(Fields& f, Config& config) {
  const bool wanted = f.has("tls");
  TlsConfig files;
  f.section(
      {"tls", "Speak TLS, on every address that does not begin with http://."}, [&](Fields& tls) {
        tls.path(
            {"certificate", "PEM file: the server's certificate, then those that vouch for it."},
            files.certificate);
        tls.path({"key", "PEM file: the certificate's private key, without a passphrase."},
                 files.key);
        tls.require("certificate", "name the PEM file of the certificate and its chain");
        tls.require("key", "name the PEM file of the certificate's private key");
      });
  if (wanted) {
    config.tls = std::move(files);
    return;
  }
  for (const ListenAddress& address : config.listen) {
    if (address.scheme == Scheme::kHttps) {
      f.reject("listen", "has an address with https://; set tls.certificate and tls.key, too");
    }
  }
}

/// What llama-swap keeps of requests, and where it writes lines: heddle has its own places for it.
void ignore_logs_and_stores(Fields& f) {
  f.ignore({"store", "metricsMaxInMemory"},
           "has no effect: /api/requests has the last requests, /api/usage what keys have used, "
           "and dataDir keeps the latter");
  f.ignore({"captureBuffer"}, "has no effect: bodies of requests are kept nowhere");
  f.ignore({"performance"}, "has no effect: /api/devices and /metrics tell of devices");
  f.ignore({"ui"}, "has no effect: the page at /ui/ tells requests apart by their keys");
  f.ignore({"logToStdout"},
           "has no effect: heddle's lines go to stderr, and engines' to /logs/stream/MODEL");
  f.ignore({"logTimeFormat"}, "has no effect: see logFormat");
  f.ignore({"logRequests"}, "has no effect: see logLevel and /api/requests");
}

}  // namespace

Result<std::vector<int>> parse_cores(std::string_view text) {
  std::vector<int> cores;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const std::optional<int> first = small_number(part.substr(0, dash), kCoresMax);
    const std::optional<int> last =
        dash == std::string_view::npos ? first : small_number(part.substr(dash + 1), kCoresMax);
    if (!first || !last || *last < *first) {
      return invalid("\"" + std::string(text) + "\" does not name cores; want such as \"0-3,6\"");
    }
    for (int core = *first; core <= *last; ++core) {
      cores.push_back(core);
    }
    if (comma == std::string_view::npos) {
      return cores;
    }
    rest.remove_prefix(comma + 1);
  }
}

std::string format_cores(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < cores.size(); begin = end) {
    end = begin + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) {
      ++end;
    }
    text += (text.empty() ? "" : ",") + std::to_string(cores[begin]);
    if (end - begin > 1) {
      text += "-" + std::to_string(cores[end - 1]);
    }
  }
  return text;
}

Result<ListenAddress> parse_listen(std::string_view whole) {
  std::string_view text = whole;
  Scheme scheme = Scheme::kUsual;
  for (const auto& [prefix, meant] :
       {std::pair("http://", Scheme::kHttp), std::pair("https://", Scheme::kHttps)}) {
    if (text.starts_with(prefix)) {
      text.remove_prefix(std::string_view(prefix).size());
      scheme = meant;
      break;
    }
  }
  const std::size_t colon = text.rfind(':');
  const bool port_only = colon == std::string_view::npos;
  std::string_view host = port_only ? std::string_view{} : text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return invalid("\"" + std::string(whole) + "\": put an IPv6 address in brackets: [::1]:8080");
  }
  const std::optional<int> port = small_number(port_only ? text : text.substr(colon + 1), 65535);
  if (!port) {
    return invalid("\"" + std::string(whole) + "\" is not an address; want such as 127.0.0.1:8080");
  }
  return ListenAddress{
      .host = host.empty() ? (port_only ? "127.0.0.1" : "0.0.0.0") : std::string(host),
      .port = static_cast<std::uint16_t>(*port),
      .scheme = scheme};
}

void declare(Fields& f, Config& config, SwapSettings& settings) {
  declare_listen(f, config);
  declare_tls(f, config);
  declare_access(f, config);
  f.section({"host", "The machine's own memory."}, [&](Fields& host) {
    host.bytes({"memory", "How much of it keeps weights that are on no device."},
               config.host.memory);
    host.bytes({"snapshots", "How much of it keeps what engines had on their devices."},
               config.host.snapshots);
    host.bytes({"kv",
                "How much of it keeps KV of models that have left CPU devices; 0 keeps none. An "
                "eighth of memory when absent, at most what these devices have."},
               config.host.kv);
    host.integer({"step_tokens", "Most tokens of one model in one step; 0: by devices' memory."},
                 {.least = 0, .most = kMostStepTokens},
                 config.host.step_tokens);
    host.rate({"nic", "What all models together are fetched at, at most: 25Gb/s or 3GB/s."},
              config.host.nic);
  });
  f.sections({"devices", "What models run on; all GPUs when absent, or one CPU device."},
             [&](Fields& item) {
               DeviceConfig device;
               declare(item, device);
               config.devices.push_back(std::move(device));
             });
  declare_engine_defaults(f, settings);
  f.named_sections({"models", "The models, by the name that requests use."},
                   [&](const std::string& id, Fields& item) {
                     ModelConfig model{.id = id};
                     declare(item, settings, model);
                     config.models.push_back(std::move(model));
                   });
  declare_peers(f, config);
  f.section({"limits", "What clients may do at most."},
            [&](Fields& item) { declare(item, config.limits); });
  f.section({"batches", "Requests that are answered when nobody else needs the devices."},
            [&](Fields& item) { declare(item, config.batches); });
  declare_adapters(f, config);
  f.section({"planner", "How it is decided what runs where and when."},
            [&](Fields& item) { declare(item, config.planner); });
  declare_cluster(f, config);
  declare_tracing(f, config);
  declare_logging(f, config);
  f.path({"dataDir", "Folder for what outlives the process."}, config.data_dir);
  f.path({"event_log", "Prefix of the files that get every event, for replay."}, config.event_log);
  f.duration({"shutdown_timeout", "What running requests get to end after SIGTERM."},
             config.shutdown_timeout);
  declare_swapping(f, config, settings);
  declare_selectors(f, config);
  declare_upstream(f, config);
  ignore_logs_and_stores(f);
}

}  // namespace heddle::config
