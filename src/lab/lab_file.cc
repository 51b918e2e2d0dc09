#include "lab/lab_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "config/reader.h"
#include "net/identity.h"

namespace heddle::lab {

using config::Node;

namespace {

constexpr std::int64_t kSeedsMost = 1000;

template <class Number>
std::optional<Number> whole_text(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

/// A decimal number within bounds.
void number(config::Fields& f, config::Key key, double least, double most, double& value) {
  std::string text;
  f.text(key, text);
  if (!f.has(key.name)) {
    return;
  }
  const std::optional<double> parsed = whole_text<double>(text);
  if (!parsed || !(*parsed >= least) || !(*parsed <= most)) {
    std::ostringstream want;
    want << "\"" << text << "\" is not a number from " << least << " to " << most;
    f.reject(key.name, want.str());
    return;
  }
  value = *parsed;
}

/// "64..256"; neither end below `least`, and the second not below the first.
std::optional<std::pair<std::int64_t, std::int64_t>> whole_range(std::string_view text,
                                                                 std::int64_t least) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return std::nullopt;
  }
  const auto first = whole_text<std::int64_t>(text.substr(0, dots));
  const auto last = whole_text<std::int64_t>(text.substr(dots + 2));
  return first && last && *first >= least && *last >= *first
             ? std::optional(std::pair(*first, *last))
             : std::nullopt;
}

/// "128" or "64..256".
void range(config::Fields& f, config::Key key, bench::TokenRange& value) {
  std::string text;
  f.text(key, text);
  f.require(key.name, "say how many tokens, such as 128 or 64..256");
  if (!f.has(key.name)) {
    return;
  }
  const bool one = text.find("..") == std::string::npos;
  const auto ends = whole_range(one ? text + ".." + text : text, 1);
  if (!ends) {
    f.reject(key.name, "\"" + text + "\" is no number of tokens; want such as 128 or 64..256");
    return;
  }
  value = {.least = ends->first, .most = ends->second};
}

void declare_file(config::Fields& f, TraceFile& trace) {
  f.path({"file", "In any format that heddle simulate reads."}, trace.path);
  f.duration({"from", "Where in the file it begins."}, trace.from);
  f.duration({"window", "What a seed takes of it: the next one takes what follows."}, trace.window);
  number(f, {"keep", "Part of the rows, drawn by the seed."}, 1e-6, 1, trace.keep);
  number(f, {"length", "Factor of all numbers of tokens."}, 1e-6, 1e3, trace.length);
  f.integer({"cut_input", "Longer prompts are cut [tokens]."}, {.least = 1}, trace.most_input);
  f.integer({"cut_output", "Longer answers are cut [tokens]."}, {.least = 1}, trace.most_output);
}

void declare_drawn(config::Fields& f, DrawnTrace& trace) {
  number(f, {"rate", "Arrivals a second, of all models."}, 1e-6, 1e6, trace.rate);
  f.require("rate", "say how many requests a second, or name a file: file: trace.csv");
  f.duration({"duration", "How long requests come."}, trace.duration);
  f.require("duration", "say how long requests come, such as 60s");
  number(f, {"zipf", "Shares of the models go with rank^-zipf."}, 0, 10, trace.zipf);
  number(f, {"cv", "Coefficient of variation of the gaps; 1: Poisson."}, 0.05, 20, trace.cv);
  f.section({"wave", "Rates that go up and down."}, [&](config::Fields& wave) {
    trace.depth = 1;
    wave.duration({"period", "From one peak to the next."}, trace.period);
    wave.require("period", "say how long it takes, such as 60s");
    number(wave, {"depth", "By what part of the mean."}, 0, 1, trace.depth);
    wave.flag({"in_turn", "One model peaks after the other."}, trace.in_turn);
    wave.flag({"square", "Rates jump, up for as long as it is a model's turn."}, trace.square);
  });
  range(f, {"input_tokens", "Of a prompt."}, trace.input);
  range(f, {"output_tokens", "Of an answer."}, trace.output);
}

void declare(config::Fields& f, LabFile& lab) {
  number(f, {"scale", "So many times as fast."}, 1e-3, 1e6, lab.scale);
  f.integer({"seeds", "Runs of each policy."}, {.least = 1, .most = kSeedsMost}, lab.seeds);
  f.duration({"warmup", "What arrives before does not count."}, lab.warmup);
  f.duration({"patience", "For one request."}, lab.patience);
  f.flag({"check", "Whether policies give the same answers: tokens and log probabilities."},
         lab.check);
  f.flag({"cold", "No host has a model when a run begins."}, lab.cold);
  f.named_sections({"engines", "What predictions take external engines to do, by model."},
                   [&](const std::string& name, config::Fields& engine) {
                     declare_engine_times(engine, lab.engines[name]);
                   });
  f.section({"trace", "What is asked."}, [&](config::Fields& trace) {
    if (trace.has("file")) {
      declare_file(trace, lab.trace.emplace());
    } else {
      declare_drawn(trace, lab.drawn.emplace());
    }
  });
  f.require("trace", "name a file (file: trace.csv) or say what to draw (rate: 4, duration: 60s)");
}

/// Takes a member out of a map; one that is no map is a problem.
Node take(Node& root, const std::string& key, config::Diagnosis& diagnosis) {
  const auto found = std::find_if(root.children.begin(),
                                  root.children.end(),
                                  [&](const Node& child) { return child.key == key; });
  if (found == root.children.end()) {
    return {.kind = Node::Kind::kMap, .line = root.line};
  }
  Node taken = std::move(*found);
  root.children.erase(found);
  if (taken.kind != Node::Kind::kMap) {
    diagnosis.problems.push_back(diagnosis.origin + ", line " + std::to_string(taken.line) + ": " +
                                 key + ": want a map");
    taken = {.kind = Node::Kind::kMap, .line = taken.line};
  }
  return taken;
}

void set(Node& map, const std::string& key, const std::string& text) {
  const auto found = std::find_if(map.children.begin(), map.children.end(), [&](const Node& child) {
    return child.key == key;
  });
  Node& node = found == map.children.end() ? map.children.emplace_back() : *found;
  node = {.kind = Node::Kind::kScalar, .line = map.line, .key = key, .text = text, .quoted = true};
}

/// Paths of models as the server finds them from another folder.
void anchor_models(Node& document, const std::string& directory) {
  for (Node& section : document.children) {
    for (Node& model : section.children) {
      for (Node& field : model.children) {
        const std::filesystem::path path = std::filesystem::path(directory) / field.text;
        std::error_code none;
        if (section.key == "models" && field.key == "path" && std::filesystem::exists(path, none)) {
          field.text = path.lexically_normal().string();
        }
      }
    }
  }
}

/// Engines that the server runs are started in the folder of the file, or where it says from there.
void anchor_engines(Node& document, const std::string& directory) {
  for (Node& section : document.children) {
    for (Node& model : section.children) {
      const auto has = [&](const char* key) {
        return std::ranges::find(model.children, key, &Node::key) != model.children.end();
      };
      if (section.key == "models" && (has("cmd") || has("engine"))) {
        const auto said = std::ranges::find(model.children, "directory", &Node::key);
        const bool none = said == model.children.end();
        set(model,
            "directory",
            none ? directory
                 : (std::filesystem::path(directory) / said->text).lexically_normal().string());
      }
    }
  }
}

/// What is a host's own is put over what all have: what an agent goes by.
Node document_of(const Node& host, const Node& common, config::Diagnosis& diagnosis) {
  for (const Node& child : host.children) {
    if (child.key != "devices" && child.key != "host") {
      diagnosis.problems.push_back(diagnosis.origin + ", line " + std::to_string(child.line) +
                                   ": hosts." + host.key + "." + child.key +
                                   ": a host differs by devices and host alone");
    }
  }
  return merge(common, host);
}

/// The hosts of a policy, each with its own configuration; their problems go to `diagnosis`.
void add_hosts(const Node& hosts,
               const config::Machine& machine,
               const LabFile& lab,
               LabPolicy& policy,
               config::Diagnosis& diagnosis) {
  for (const Node& host : hosts.children) {
    if (host.kind != Node::Kind::kMap && host.kind != Node::Kind::kNull) {
      diagnosis.problems.push_back(lab.file + ", line " + std::to_string(host.line) + ": hosts." +
                                   host.key + ": want a map such as {} or {devices: [...]}");
      continue;
    }
    if (const Result<void> named = net::check_name("host", host.key); !named) {
      diagnosis.problems.push_back(lab.file + ", line " + std::to_string(host.line) +
                                   ": hosts: " + named.error().message);
    }
    Node document = document_of(host, policy.document, diagnosis);
    Result<config::Config> config = config::parse_config(document, lab.file, machine);
    if (!config) {
      diagnosis.problems.push_back("hosts." + host.key + ": " + config.error().message);
      return;
    }
    policy.hosts.push_back(
        {.name = host.key, .document = std::move(document), .config = std::move(config).value()});
  }
}

/// The policy whose configuration is `document`; its problems go to `diagnosis`.
void add_policy(const std::string& name,
                Node document,
                const Node& hosts,
                const config::Machine& machine,
                LabFile& lab,
                config::Diagnosis& diagnosis) {
  // The client is this program, on this machine; where the server listens is found out.
  set(document, "listen", "http://127.0.0.1:0");
  std::erase_if(document.children, [](const Node& child) { return child.key == "cluster"; });
  anchor_models(document, lab.directory);
  anchor_engines(document, lab.directory);
  Result<config::Config> config = config::parse_config(document, lab.file, machine);
  if (!config) {
    diagnosis.problems.push_back(config.error().message);
    return;
  }
  if (config->models.empty()) {
    diagnosis.problems.push_back(lab.file + ", line " + std::to_string(document.line) +
                                 ": config.models: is missing: name the models to ask");
  }
  if (!config->api_keys.empty()) {
    diagnosis.problems.push_back(lab.file + ": config.apiKeys: a laboratory's server needs none");
  }
  LabPolicy policy{
      .name = name, .document = std::move(document), .config = std::move(config).value()};
  add_hosts(hosts, machine, lab, policy, diagnosis);
  lab.policies.push_back(std::move(policy));
}

std::vector<std::string> names(const config::Config& config) {
  std::vector<std::string> all;
  for (const config::ModelConfig& model : config.models) {
    all.push_back(model.id);
  }
  return all;
}

/// All policies get the same requests.
void check_models(const LabFile& lab, config::Diagnosis& diagnosis) {
  for (const LabPolicy& policy : lab.policies) {
    if (names(policy.config) != names(lab.policies.front().config)) {
      diagnosis.problems.push_back(lab.file + ", line " + std::to_string(policy.document.line) +
                                   ": policies." + policy.name +
                                   ".models: there must be the same models under all policies");
    }
  }
}

void add_policies(const Node& base,
                  const Node& overlays,
                  const Node& hosts,
                  const config::Machine& machine,
                  LabFile& lab,
                  config::Diagnosis& diagnosis) {
  if (overlays.children.empty()) {
    add_policy("default", base, hosts, machine, lab, diagnosis);
  }
  for (const Node& overlay : overlays.children) {
    if (overlay.kind != Node::Kind::kMap && overlay.kind != Node::Kind::kNull) {
      diagnosis.problems.push_back(lab.file + ", line " + std::to_string(overlay.line) +
                                   ": policies." + overlay.key +
                                   ": want a map that is put over config, such as {planner: "
                                   "{policy: reactive}}");
      continue;
    }
    const std::size_t before = diagnosis.problems.size();
    add_policy(overlay.key, merge(base, overlay), hosts, machine, lab, diagnosis);
    if (diagnosis.problems.size() > before) {
      return;  // What is wrong with the common part would be said once more for each.
    }
  }
}

/// Where hosts fetch models it has to be known what their links carry, and what there is to fetch.
void check_cold(const LabPolicy& policy, const LabFile& lab, config::Diagnosis& diagnosis) {
  const auto problem = [&](const std::string& what) {
    diagnosis.problems.push_back(lab.file + ", line " + std::to_string(policy.document.line) +
                                 ": cold: " + what);
  };
  const auto check = [&](const std::string& host, const config::Config& config) {
    if (config.host.nic == 0) {
      problem(host + "host.nic is missing: say at which rate models are fetched, such as 10MB/s");
    }
  };
  if (policy.hosts.empty()) {
    check("", policy.config);
  }
  for (const LabHost& host : policy.hosts) {
    check("hosts." + host.name + ": ", host.config);
  }
  for (const config::ModelConfig& model : policy.config.models) {
    std::error_code none;
    if (!std::filesystem::is_directory(model.path, none)) {
      problem("models." + model.id + ".path: \"" + model.path +
              "\" is no folder that the laboratory could give hosts the model from");
    }
  }
}

/// What the file says of engines is of models that have one, and of all ways of suspending it.
void check_engines(const LabFile& lab, config::Diagnosis& diagnosis) {
  for (const auto& [name, times] : lab.engines) {
    for (const LabPolicy& policy : lab.policies) {
      const auto model = std::ranges::find(policy.config.models, name, &config::ModelConfig::id);
      std::string problem;
      if (model == policy.config.models.end() || !model->engine) {
        problem = "no external engine serves a model of that name";
      }
      for (const spec::SuspendLevel level :
           problem.empty() ? model->engine->suspend : std::vector<spec::SuspendLevel>()) {
        if (level != spec::SuspendLevel::kStop && !times.suspend.contains(level)) {
          problem = "suspend." + std::string(spec::name(level)) +
                    " is missing: say what it takes, such as {in: 1s}";
        }
      }
      if (!problem.empty()) {
        diagnosis.problems.push_back(lab.file + ": engines." + name + ": " + problem);
        break;
      }
    }
  }
}

Error problems(const config::Diagnosis& diagnosis) {
  std::string all;
  for (const std::string& problem : diagnosis.problems) {
    all += (all.empty() ? "" : "\n") + problem;
  }
  return {.code = Code::kInvalidArgument, .message = std::move(all)};
}

}  // namespace

Node merge(const Node& under, const Node& over) {
  if (under.kind != Node::Kind::kMap || over.kind != Node::Kind::kMap) {
    return over.kind == Node::Kind::kNull ? under : over;
  }
  Node merged = under;
  for (const Node& child : over.children) {
    const auto found = std::find_if(merged.children.begin(),
                                    merged.children.end(),
                                    [&](const Node& each) { return each.key == child.key; });
    if (found == merged.children.end()) {
      merged.children.push_back(child);
    } else {
      *found = merge(*found, child);
    }
  }
  return merged;
}

Result<LabFile> parse_lab_file(std::string_view text,
                               const std::string& file,
                               const config::Environment& environment,
                               const config::Machine& machine) {
  Result<Node> root = config::parse_document(text, file, environment);
  if (!root) {
    return root.error();
  }
  if (root->kind != Node::Kind::kMap) {
    return Error{.code = Code::kInvalidArgument,
                 .message = file + ": the document is not a map; want keys such as \"trace:\""};
  }
  LabFile lab{.file = file, .directory = std::filesystem::absolute(file).parent_path().string()};
  config::Diagnosis diagnosis{.origin = file, .directory = lab.directory};
  // Predictions keep no KV of models that have left, so servers keep none unless they are told to.
  const Result<Node> without_kept_kv = config::parse_document("host: {kv: 0}", file, environment);
  const Node base = merge(*without_kept_kv, take(*root, "config", diagnosis));
  const Node overlays = take(*root, "policies", diagnosis);
  const Node hosts = take(*root, "hosts", diagnosis);
  config::Reader reader(*root, "", diagnosis);
  declare(reader, lab);
  reader.finish();
  add_policies(base, overlays, hosts, machine, lab, diagnosis);
  check_models(lab, diagnosis);
  check_engines(lab, diagnosis);
  if (lab.cold && !lab.policies.empty()) {
    check_cold(lab.policies.front(), lab, diagnosis);
  }
  if (!diagnosis.problems.empty()) {
    return problems(diagnosis);
  }
  return lab;
}

Result<void> choose_seeds(std::string_view text, LabFile& lab) {
  const auto count = whole_text<std::int64_t>(text);
  const auto ends = count ? std::pair(std::int64_t{0}, *count - 1) : whole_range(text, 0);
  if (!ends || ends->second < ends->first || ends->second - ends->first >= kSeedsMost) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + std::string(text) +
                            "\" is no number of seeds; want such as 3 (0 to 2) or 3..5, at most " +
                            std::to_string(kSeedsMost)};
  }
  lab.first_seed = ends->first;
  lab.seeds = ends->second - ends->first + 1;
  return {};
}

std::vector<LabDevice> devices_of(const LabPolicy& policy) {
  std::vector<LabDevice> devices;
  const auto add = [&](const std::string& prefix, const config::Config& config) {
    for (const config::DeviceConfig& device : config.devices) {
      devices.push_back({.name = prefix + device.name, .config = &device});
    }
  };
  if (policy.hosts.empty()) {
    add("", policy.config);
  }
  for (const LabHost& host : policy.hosts) {
    add(host.name + "/", host.config);
  }
  return devices;
}

const config::ModelConfig& model_called(const config::Config& config, const std::string& name) {
  return *std::find_if(config.models.begin(), config.models.end(), [&](const auto& model) {
    return model.id == name;
  });
}

std::vector<std::string> model_names(const LabFile& lab) {
  return names(lab.policies.front().config);
}

Result<LabFile> load_lab_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    return Error{.code = Code::kNotFound,
                 .message = "read experiment \"" + file + "\": no such file, or not readable"};
  }
  return parse_lab_file(text.str(), file, config::process_environment, config::this_machine());
}

}  // namespace heddle::lab
