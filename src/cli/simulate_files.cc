#include "cli/simulate_files.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/units.h"
#include "config/reader.h"

namespace heddle::cli {

namespace {

using config::Fields;

/// Runs `declare` over a file and collects its problems.
Result<void> read_file(const std::string& file, const Fields::Declare& declare) {
  std::ifstream stream(file);
  std::stringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    return Error{.code = Code::kNotFound, .message = file + ": cannot be read"};
  }
  const Result<config::Node> node =
      config::parse_document(text.str(), file, config::process_environment);
  if (!node) {
    return node.error();
  }
  config::Diagnosis diagnosis{.origin = file,
                              .directory = std::filesystem::path(file).parent_path().string()};
  config::Reader reader(*node, "", diagnosis);
  declare(reader);
  reader.finish();
  for (const std::string& warning : diagnosis.warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  if (diagnosis.problems.empty()) {
    return {};
  }
  std::string all;
  for (const std::string& problem : diagnosis.problems) {
    all += (all.empty() ? "" : "\n") + problem;
  }
  return Error{.code = Code::kInvalidArgument, .message = all};
}

/// A positive decimal number.
void number(Fields& f, config::Key key, double& value) {
  std::string text;
  f.text(key, text);
  if (!f.has(key.name)) {
    return;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0)) {
    f.reject(key.name, "\"" + text + "\" is not a number of at least 0");
  }
}

void seconds(Fields& f, config::Key key, double& value) {
  Duration duration{};
  f.duration(key, duration);
  value = f.has(key.name) ? to_seconds(duration) : value;
}

void rate(Fields& f, config::Key key, double& value) {
  std::uint64_t bytes = 0;
  f.rate(key, bytes);
  value = f.has(key.name) ? static_cast<double>(bytes) : value;
}

void per_byte(Fields& f, config::Key key, double& value) {
  std::string text;
  f.text(key, text);
  if (!f.has(key.name)) {
    return;
  }
  const Result<double> parsed = parse_seconds_per_byte(text);
  if (parsed) {
    value = *parsed;
  } else {
    f.reject(key.name, parsed.error().message);
  }
}

void bytes(Fields& f, config::Key key, std::int64_t& value) {
  auto size = static_cast<std::uint64_t>(value);
  f.bytes(key, size);
  value = static_cast<std::int64_t>(size);
}

void declare_gpu(Fields& f, sim::GpuProfile& gpu) {
  number(f, {"flops", "Dense 16-bit peak per second."}, gpu.flops);
  rate(f, {"bandwidth", "Memory bandwidth."}, gpu.bandwidth);
  bytes(f, {"memory", "Memory."}, gpu.memory);
  number(f, {"compute", "Part of the peak that matrix products reach."}, gpu.compute_efficiency);
  number(f, {"weights", "Part of the bandwidth when weights are read."}, gpu.memory_efficiency);
  number(f, {"kv", "Part of the bandwidth in decode attention."}, gpu.kv_efficiency);
  number(f, {"pointwise", "Part of the bandwidth in the rest."}, gpu.pointwise_efficiency);
  seconds(f, {"linear_overhead", "Per layer."}, gpu.linear_overhead);
  seconds(f, {"pointwise_overhead", "Per layer."}, gpu.pointwise_overhead);
  seconds(f, {"decode_overhead", "Decode attention, per layer."}, gpu.decode_overhead);
  seconds(f, {"prefill_overhead", "Per chunk and layer."}, gpu.prefill_overhead);
  number(f, {"prefill_self", "Part of the peak within a chunk."}, gpu.prefill_self);
  number(f, {"prefill_cached", "Part of the peak against cached tokens."}, gpu.prefill_cached);
  number(f, {"co_running", "Of a neighbour's GPU time, added to a step."}, gpu.co_running);
  seconds(f, {"poll", "A kernel that looks at one word."}, gpu.poll);
  f.sections({"all_reduce", "By tensor-parallel degree."}, [&](Fields& item) {
    sim::AllReduce entry;
    item.integer({"tp", "Devices."}, {.least = 2, .most = 64}, entry.tp);
    seconds(item, {"latency", "Of one."}, entry.latency);
    rate(item, {"bandwidth", "Algorithmic."}, entry.bandwidth);
    gpu.all_reduce.push_back(entry);
  });
  for (const char* key : {"flops", "bandwidth", "memory", "prefill_self", "prefill_cached"}) {
    f.require(key, "the model of step times needs it");
  }
}

void declare_shape(Fields& f, sim::ModelShape& shape) {
  constexpr config::Range kSize{.least = 1, .most = 1 << 24};
  f.integer({"hidden", "Width."}, kSize, shape.hidden);
  f.integer({"intermediate", "Width of the MLP."}, kSize, shape.intermediate);
  f.integer({"layers", "Layers."}, kSize, shape.layers);
  f.integer({"heads", "Query heads."}, kSize, shape.heads);
  f.integer({"kv_heads", "Key and value heads."}, kSize, shape.kv_heads);
  f.integer({"head_dim", "Width of a head."}, kSize, shape.head_dim);
  f.integer({"vocab", "Vocabulary."}, kSize, shape.vocab);
  f.flag({"tied", "The head is the embedding."}, shape.tied_embeddings);
  for (const char* key :
       {"hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab"}) {
    f.require(key, "a model has it");
  }
}

void declare_engine(Fields& f, sim::EngineProfile& engine) {
  seconds(f, {"fixed", "Added to a step's GPU time."}, engine.fixed);
  seconds(f, {"launch", "Issuing one layer's kernels."}, engine.launch_per_layer);
  seconds(f, {"cpu", "Between steps."}, engine.cpu_fixed);
  seconds(f, {"cpu_sequence", "And for each sequence."}, engine.cpu_per_sequence);
}

void declare_platform(Fields& f, sim::StartupProfile& startup) {
  seconds(f, {"container", "A container is created."}, startup.container);
  seconds(f, {"context", "The device context."}, startup.context);
  seconds(f, {"library", "Imports."}, startup.library);
  seconds(f, {"engine", "A stock engine's own initialisation."}, startup.engine);
  seconds(f, {"attach", "A prepared engine takes over weights."}, startup.attach);
  seconds(f, {"communicator", "A group of devices is set up."}, startup.communicator);
  seconds(f, {"hop", "Between pipeline stages."}, startup.hop);
  seconds(f, {"group", "A pipeline is formed."}, startup.group);
  per_byte(f, {"load", "A stock loader, after the fetch."}, startup.load_per_byte);
  per_byte(f, {"cached_load", "The same from host memory."}, startup.cached_per_byte);
  seconds(f, {"map_page", "Mapping or unmapping a page."}, startup.map_per_page);
  seconds(f, {"swap", "A suspended engine returns."}, startup.swap_fixed);
  per_byte(f, {"swap_load", "And for its image."}, startup.swap_per_byte);
  seconds(f, {"restart", "One stock engine for another."}, startup.restart);
}

/// A map of named entries under one key.
template <class Entry>
Result<void> read_entries(const std::string& file,
                          std::string_view key,
                          void (*declare)(Fields&, Entry&),
                          std::vector<std::pair<std::string, Entry>>& entries) {
  return read_file(file, [&](Fields& f) {
    f.named_sections({key, "By name."}, [&](const std::string& name, Fields& item) {
      Entry entry;
      declare(item, entry);
      entries.emplace_back(name, entry);
    });
  });
}

/// Looks a name up; the error goes to the field that has it.
template <class Entry>
void look_up(Fields& f,
             config::Key key,
             const std::vector<std::pair<std::string, Entry>>& entries,
             Entry& value) {
  std::string name;
  f.text(key, name);
  if (!f.has(key.name)) {
    return;
  }
  std::string known;
  for (const auto& [each, entry] : entries) {
    if (each == name) {
      value = entry;
      return;
    }
    known += " " + each;
  }
  f.reject(key.name, "\"" + name + "\" is not known; there are:" + known);
}

void declare_host(Fields& f, const PerfData& perf, sim::ClusterSpec& cluster) {
  std::vector<std::pair<std::string, sim::GpuProfile>> gpus;
  for (const sim::GpuProfile& gpu : perf.gpus) {
    gpus.emplace_back(gpu.name, gpu);
  }
  sim::HostSpec host;
  std::int64_t count = 1;
  f.integer({"count", "Servers like this."}, {.least = 1, .most = 100'000}, count);
  f.text({"name", "For people."}, host.name);
  look_up(f, {"gpu", "Kind of its GPUs."}, gpus, host.gpu);
  f.require("gpu", "name an entry of gpus.yaml");
  f.integer({"gpus", "How many."}, {.least = 1, .most = 64}, host.gpus);
  f.require("gpus", "say how many GPUs a server has");
  number(f, {"usable", "Part of a GPU's memory for pages."}, host.usable);
  bytes(f, {"cache", "Host memory for weights."}, host.cache_bytes);
  rate(f, {"nic", "What the network really delivers."}, host.links.nic);
  f.require("nic", "weights come over it");
  rate(f, {"pcie", "Host to one GPU."}, host.links.pcie);
  f.require("pcie", "weights go over it");
  rate(f, {"nvlink", "Between its GPUs."}, host.links.nvlink);
  rate(f, {"host_memory", "All copies together."}, host.links.host_memory);
  rate(f, {"disk", "Local disk."}, host.links.disk);
  rate(f, {"spread", "One model through all GPUs."}, host.links.spread);
  number(f, {"price", "Of the server for an hour; for heddle plan."}, host.price);
  look_up(f, {"platform", "What starting costs."}, perf.platforms, host.startup);
  f.require("platform", "name an entry of platforms.yaml");
  if (host.usable > 1) {
    f.reject("usable", "must be at most 1");
  }
  for (std::int64_t i = 0; i < count; ++i) {
    cluster.hosts.push_back(host);
  }
}

void declare_model(Fields& f, const PerfData& perf, sim::ModelSpec& model) {
  look_up(f, {"shape", "Dimensions."}, perf.shapes, model.shape);
  f.require("shape", "name an entry of models.yaml");
  look_up(f, {"engine", "What the engine costs."}, perf.engines, model.engine);
  f.require("engine", "name an entry of engines.yaml");
  f.integer({"tp", "GPUs of an instance."}, {.least = 1, .most = 64}, model.tp);
  f.integer({"batch", "Most sequences at once."}, {.least = 1, .most = 4096}, model.max_sequences);
  f.integer({"chunk", "Most tokens in a step."}, {.least = 16}, model.max_batch_tokens);
  f.flag({"prompts_elsewhere", "Prompts are read on other GPUs, which are not modelled."},
         model.prompts_elsewhere);
  f.flag({"external", "An external engine: suspended and resumed as a whole."}, model.external);
  f.flag({"foreign", "The old name of external."}, model.external);
  if (f.has("foreign")) {                                  // Old name.
    f.warn("foreign", "is the old name of \"external\"");  // Old name.
  }
  bytes(f, {"overhead", "Context, workspace, activations, per GPU."}, model.overhead_bytes);
  f.duration({"ttft", "Objective: time to first token."}, model.slo_ttft);
  f.duration({"tpot", "Objective: time per further token."}, model.slo_tpot);
  f.integer(
      {"context", "Most tokens of a request; 0: what fits."}, {.least = 0}, model.most_tokens);
}

}  // namespace

Result<double> parse_seconds_per_byte(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const Result<Duration> time = parse_duration(text.substr(0, slash));
    const Result<std::uint64_t> size = parse_bytes("1" + std::string(text.substr(slash + 1)));
    if (time && size) {
      return static_cast<double>(time->count()) * 1e-9 / static_cast<double>(*size);
    }
  }
  return Error{.code = Code::kInvalidArgument,
               .message = "\"" + std::string(text) +
                          "\" is not a time per size; want such as "
                          "0.5s/GB"};
}

Result<std::string> find_perf_folder(const std::string& named, const std::string& cluster_file) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path here = fs::current_path(none);
  const fs::path beside = fs::absolute(cluster_file, none).parent_path();
  std::vector<fs::path> places;
  if (!named.empty()) {
    places = {here / named, beside / named};
  } else {
    const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
    for (const fs::path& start : {here, beside, program}) {
      for (fs::path at = start; !at.empty(); at = at.parent_path()) {
        places.push_back(at / "data" / "perf");
        if (at == at.root_path()) {
          break;
        }
      }
    }
  }
  std::string tried;
  std::set<fs::path> seen;
  for (const fs::path& place : places) {
    if (!seen.insert(place.lexically_normal()).second) {
      continue;
    }
    if (fs::exists(place / "gpus.yaml", none)) {
      return place.lexically_normal().string();
    }
    tried += "\n  " + place.lexically_normal().string();
  }
  return Error{.code = Code::kNotFound,
               .message =
                   "no folder of performance constants (gpus.yaml and others); name it with "
                   "--perf. Tried:" +
                   tried};
}

Result<PerfData> load_perf_data(const std::string& folder) {
  PerfData perf;
  std::vector<std::pair<std::string, sim::GpuProfile>> gpus;
  for (const Result<void>& read :
       {read_entries(folder + "/gpus.yaml", "gpus", declare_gpu, gpus),
        read_entries(folder + "/models.yaml", "models", declare_shape, perf.shapes),
        read_entries(folder + "/engines.yaml", "engines", declare_engine, perf.engines),
        read_entries(folder + "/platforms.yaml", "platforms", declare_platform, perf.platforms)}) {
    if (!read) {
      return read.error();
    }
  }
  for (auto& [name, gpu] : gpus) {
    gpu.name = name;
    perf.gpus.push_back(std::move(gpu));
  }
  return perf;
}

Result<sim::ClusterSpec> load_cluster(const std::string& file, const PerfData& perf) {
  sim::ClusterSpec cluster;
  const Result<void> read = read_file(file, [&](Fields& f) {
    bytes(f, {"page", "Size of a page."}, cluster.page_bytes);
    f.sections({"hosts", "Kinds of servers."},
               [&](Fields& item) { declare_host(item, perf, cluster); });
    f.require("hosts", "a cluster has servers");
  });
  if (!read) {
    return read.error();
  }
  return cluster;
}

Result<std::vector<ModelRule>> load_model_rules(const std::string& file, const PerfData& perf) {
  std::vector<ModelRule> rules;
  const Result<void> read = read_file(file, [&](Fields& f) {
    f.named_sections({"models", "By the label that the trace has; ends in * for all like it."},
                     [&](const std::string& label, Fields& item) {
                       ModelRule rule{.label = label};
                       declare_model(item, perf, rule.spec);
                       rules.push_back(std::move(rule));
                     });
    f.require("models", "say what the models of the trace are");
  });
  if (!read) {
    return read.error();
  }
  return rules;
}

Result<sim::ModelSpec> find_model(const std::vector<ModelRule>& rules, const std::string& label) {
  for (const ModelRule& rule : rules) {
    const bool prefix = !rule.label.empty() && rule.label.back() == '*';
    const std::string stem = prefix ? rule.label.substr(0, rule.label.size() - 1) : rule.label;
    if (prefix ? label.compare(0, stem.size(), stem) == 0 : label == stem) {
      sim::ModelSpec spec = rule.spec;
      spec.name = label;
      return spec;
    }
  }
  return Error{.code = Code::kNotFound,
               .message = "no rule of the model file fits \"" + label + "\""};
}

}  // namespace heddle::cli
