#include "config/config.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "base/units.h"
#include "config/adapters.h"
#include "config/blocks.h"
#include "config/declare.h"
#include "config/engine_declare.h"
#include "config/fallback.h"
#include "config/macros.h"
#include "config/peers.h"
#include "config/reader.h"
#include "config/selectors.h"
#include "config/tracing.h"

namespace heddle::config {

namespace {

/// Of host memory, what KV has beside it when nothing is said.
constexpr std::uint64_t kKvPart = 8;
/// Stands for that until the host's memory is known.
constexpr std::uint64_t kKvOfMemory = ~std::uint64_t{0};
/// Of the image cache, when nothing is said. With GPUs a quarter of the machine's memory if that is
/// more: all their weights come from there.
constexpr std::uint64_t kHostMemory = std::uint64_t{1} << 30U;
constexpr std::uint64_t kArenaTenths = 7;

/// What of a GPU is heddle's when nothing is said: the rest is for the driver's own memory,
/// captured steps and workspace.
constexpr std::uint64_t kGpuTenths = 9;

/// Devices for what there is: memory that is only counted when there are engines alone, else all
/// GPUs, else the cores of this machine with half of its memory.
void add_default_devices(Config& config, const Machine& machine) {
  const bool only_engines =
      !config.models.empty() &&
      std::all_of(config.models.begin(), config.models.end(), [](const ModelConfig& model) {
        return model.engine.has_value();
      });
  if (only_engines) {
    DeviceConfig device{.name = "engines", .kind = DeviceKind::kExternal};
    device.memory = machine.memory / device.page * device.page;
    config.devices.push_back(std::move(device));
    return;
  }
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (machine.gpus[i].unusable.empty()) {
      config.devices.push_back(
          {.kind = DeviceKind::kCuda, .gpu = static_cast<int>(i), .copy = true});
    }
  }
  if (config.devices.empty()) {
    DeviceConfig device{.name = "cpu0", .cores = machine.cores};
    device.memory = machine.memory / 2 / device.page * device.page;
    config.devices.push_back(std::move(device));
  }
}

/// What is wrong with the number of a GPU; empty: nothing.
std::string gpu_trouble(const DeviceConfig& device, const Machine& machine) {
  if (machine.gpus.empty()) {
    return "kind: there is no GPU that heddle could use: " + machine.no_gpus;
  }
  if (std::cmp_less(device.gpu, machine.gpus.size())) {
    const std::string& why = machine.gpus[static_cast<std::size_t>(device.gpu)].unusable;
    return why.empty() ? "" : "gpu: GPU " + std::to_string(device.gpu) + " " + why;
  }
  std::string there;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    there += (i == 0 ? "" : ", ") + std::to_string(i) + " (" + machine.gpus[i].name + ")";
  }
  return "gpu: there is no GPU " + std::to_string(device.gpu) + "; there are " + there;
}

void check_device(std::size_t index,
                  const DeviceConfig& device,
                  const Machine& machine,
                  Diagnosis& diagnosis) {
  const std::string where =
      diagnosis.origin + ": devices[" + std::to_string(index) + "] (" + device.name + "): ";
  const auto reject = [&](const std::string& problem) {
    diagnosis.problems.push_back(where + problem);
  };
  for (const int core : device.cores) {
    if (!std::binary_search(machine.cores.begin(), machine.cores.end(), core)) {
      reject("cores: there is no core " + std::to_string(core) + "; this process may use " +
             format_cores(machine.cores));
    }
  }
  if (device.kind == DeviceKind::kCuda) {
    if (const std::string trouble = gpu_trouble(device, machine); !trouble.empty()) {
      reject(trouble);
      return;
    }
    const Gpu& gpu = machine.gpus[static_cast<std::size_t>(device.gpu)];
    if (device.memory > gpu.memory) {
      reject("memory: " + format_bytes(device.memory) + " of a GPU with " +
             format_bytes(gpu.memory));
    } else if (device.memory > gpu.memory - std::min(gpu.memory, gpu.others)) {
      diagnosis.warnings.push_back(
          where + "memory: " + format_bytes(device.memory) + " of a GPU with " +
          format_bytes(gpu.memory) + ", of which others hold " + format_bytes(gpu.others) + " (" +
          gpu.holders + "): it is of no use until they give it up, or less is asked for");
    }
    if (gpu.page > 0 && device.page % gpu.page != 0) {
      reject("page: " + std::to_string(device.page) + " bytes; this GPU maps " +
             format_bytes(gpu.page) + " at once, of which a page must be a multiple");
      return;
    }
  }
  if (!std::has_single_bit(device.page) || device.page < 4096 || device.page > 1U << 30U) {
    reject("page: " + std::to_string(device.page) +
           " bytes; want a power of two from 4KiB to 1GiB, such as 2MiB");
  } else if (device.memory < device.page) {
    reject("memory: " + std::to_string(device.memory) + " bytes is less than one page of " +
           std::to_string(device.page) + " bytes");
  }
}

std::string_view prefix_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kExternal:
      return "external";
    case DeviceKind::kCuda:
      return "gpu";
  }
  return "";
}

/// GPUs that are not numbered get the numbers that follow the last one's.
void complete_gpu(DeviceConfig& device, int& next, const Machine& machine) {
  if (device.gpu < 0) {
    device.gpu = next;
  }
  next = device.gpu + 1;
  if (!std::cmp_less(device.gpu, machine.gpus.size())) {
    return;
  }
  const Gpu& gpu = machine.gpus[static_cast<std::size_t>(device.gpu)];
  device.no_guests = gpu.no_guests;
  device.peers = gpu.peers;
  if (device.memory == 0) {
    const std::uint64_t left = gpu.memory - std::min(gpu.memory, gpu.others);
    // Where others have it all, a page: the device is of no use, and nothing else is the worse.
    device.memory = std::max(left / 10 * kGpuTenths / device.page, std::uint64_t{1}) * device.page;
  }
}

/// What CPU devices have together.
std::uint64_t on_cpus(const Config& config) {
  std::uint64_t devices = 0;
  for (const DeviceConfig& device : config.devices) {
    devices += device.kind == DeviceKind::kCpu ? device.memory : 0;
  }
  return devices;
}

/// A quarter of the machine's memory, so that a model of the user's own fits without a word about
/// it; less where that and CPU devices would take more than seven tenths. Not by what is free now:
/// a reload must find the same.
std::uint64_t default_host_memory(const Config& config, const Machine& machine) {
  const std::uint64_t devices = on_cpus(config);
  const std::uint64_t most = machine.memory / 10 * kArenaTenths;
  return std::max(std::min(machine.memory / 4, most - std::min(most, devices)), kHostMemory);
}

void complete_devices(Config& config, const Machine& machine, Diagnosis& diagnosis) {
  if (config.devices.empty()) {
    add_default_devices(config, machine);
  }
  const auto paged = std::find_if(config.devices.begin(),
                                  config.devices.end(),
                                  [](const DeviceConfig& device) { return device.page > 0; });
  const std::uint64_t page = paged == config.devices.end() ? DeviceConfig{}.page : paged->page;
  int next_gpu = 0;
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    DeviceConfig& device = config.devices[i];
    if (device.page == 0) {
      device.page = page;
    }
    if (device.kind == DeviceKind::kCuda) {
      complete_gpu(device, next_gpu, machine);
    }
    if (device.name.empty()) {
      device.name = std::string(prefix_of(device.kind)) + std::to_string(i);
    }
    if (device.cores.empty() && device.kind == DeviceKind::kCpu) {
      device.cores = machine.cores;
    }
    check_device(i, device, machine, diagnosis);
  }
  if (config.host.memory == 0) {
    config.host.memory = default_host_memory(config, machine);
  }
  if (config.host.kv == kKvOfMemory) {
    config.host.kv = std::min(config.host.memory / kKvPart, on_cpus(config));
  }
}

/// Names that two things share: devices must differ by name, models by name and alias.
void check_names(const Config& config, Diagnosis& diagnosis) {
  std::map<std::string, std::size_t> devices;
  for (std::size_t i = 0; i < config.devices.size(); ++i) {
    const auto [first, fresh] = devices.emplace(config.devices[i].name, i);
    if (!fresh) {
      diagnosis.problems.push_back(diagnosis.origin + ": devices[" + std::to_string(i) +
                                   "].name: \"" + first->first + "\" is the name of devices[" +
                                   std::to_string(first->second) + "] already");
    }
  }
  std::map<std::string, std::string> models;
  for (const ModelConfig& model : config.models) {
    models.emplace(model.id, model.id);
  }
  for (const ModelConfig& model : config.models) {
    for (const std::string& alias : model.aliases) {
      const auto [first, fresh] = models.emplace(alias, model.id);
      if (!fresh) {
        diagnosis.problems.push_back(diagnosis.origin + ": models." + model.id + ".aliases: \"" +
                                     alias + "\" already means the model " + first->second);
      }
    }
  }
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) {
      text += '\n';
    }
    text += line;
  }
  return text;
}

/// Which GPUs reach each other's memory is said at the start (host::guest_pairs).
void check_weave(const Config& config, Diagnosis& diagnosis) {
  const auto several = [&](DeviceKind kind) {
    return std::ranges::count(config.devices, kind, &DeviceConfig::kind) > 1;
  };
  if (config.planner.weave && !several(DeviceKind::kCpu) && !several(DeviceKind::kCuda)) {
    diagnosis.warnings.push_back(
        diagnosis.origin +
        ": planner.weave has no effect: it is between devices of kind cpu, or between those of "
        "kind cuda, and there are not two of either");
  }
  if (config.planner.weave && config.planner.kv == KvSharing::kStatic) {
    diagnosis.problems.push_back(diagnosis.origin +
                                 ": planner.weave: true contradicts kv: static, under which no "
                                 "device lends memory");
  }
}

/// Reads a document whose defaults may come from `environment`.
Result<Config> read_config(Node root,
                           const std::string& file,
                           const Environment& environment,
                           const Machine& machine,
                           EnginePlaces engines) {
  if (root.kind != Node::Kind::kMap && root.kind != Node::Kind::kNull) {
    return Error{.code = Code::kInvalidArgument,
                 .message = file + ": the document is not a map; want keys such as \"models:\""};
  }
  Config config{.file = file, .directory = std::filesystem::absolute(file).parent_path().string()};
  Diagnosis diagnosis{.origin = file, .directory = config.directory};
  config.tracing = tracing_of(environment, diagnosis.warnings);
  if (engines == EnginePlaces::kHere) {
    fall_back(root, environment, diagnosis);
  }
  SwapSettings settings{.directory = config.directory, .ports = expand_macros(root, diagnosis)};
  Reader reader(root, "", diagnosis);
  config.host.kv = kKvOfMemory;
  declare(reader, config, settings);
  reader.finish();
  complete_devices(config, machine, diagnosis);
  check_names(config, diagnosis);
  settle_adapters(config, diagnosis);
  complete_engines(config, settings, engines, diagnosis);
  check_peers(config, diagnosis);
  check_selectors(config, diagnosis);
  check_weave(config, diagnosis);
  for (const std::string& problem : block_problems(config, engines == EnginePlaces::kByHost)) {
    diagnosis.problems.push_back(diagnosis.origin + ": " + problem);
  }
  config.warnings = diagnosis.warnings;
  if (!diagnosis.problems.empty()) {
    return Error{.code = Code::kInvalidArgument, .message = join_lines(diagnosis.problems)};
  }
  return config;
}

}  // namespace

Result<Config> parse_config(std::string_view text,
                            const std::string& file,
                            const Environment& environment,
                            const Machine& machine) {
  Result<Node> root = parse_document(text, file, environment);
  return root
             ? read_config(std::move(root).value(), file, environment, machine, EnginePlaces::kHere)
             : root.error();
}

Result<Config> parse_config(Node root,
                            const std::string& file,
                            const Machine& machine,
                            EnginePlaces engines) {
  const Environment none = [](const std::string& /*name*/) { return std::nullopt; };
  return read_config(std::move(root), file, none, machine, engines);
}

Result<Config> load_config(const std::string& file, EnginePlaces engines) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) {
    text << stream.rdbuf();
  }
  if (!stream || text.fail()) {
    return Error{.code = Code::kNotFound,
                 .message = "read configuration \"" + file +
                            "\": no such file, or not readable; name one with --config FILE"};
  }
  Result<Node> root = parse_document(text.str(), file, process_environment);
  return root ? read_config(
                    std::move(root).value(), file, process_environment, this_machine(), engines)
              : root.error();
}

}  // namespace heddle::config
