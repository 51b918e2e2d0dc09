#include "config/presets.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace heddle::config {

namespace {

using spec::EngineKind;
using spec::SuspendLevel;

constexpr std::array<std::string_view, 1> kVllmSleepFlags{"--enable-sleep-mode"};
constexpr std::array kVllmSleepLevels{SuspendLevel::kSleep, SuspendLevel::kDeepSleep};
// Without the second, SGLang drops its weights and wakes with whatever is where they were.
constexpr std::array<std::string_view, 2> kSglangSleepFlags{"--enable-memory-saver",
                                                            "--enable-weights-cpu-backup"};
constexpr std::array kSglangSleepLevels{SuspendLevel::kSleep};
constexpr std::array kOllamaSleepLevels{SuspendLevel::kDeepSleep};
constexpr std::array<std::string_view, 1> kTritonSleepFlags{"--model-control-mode=explicit"};
constexpr std::array kTritonSleepLevels{SuspendLevel::kDeepSleep};

constexpr std::array kPresets{
    Preset{.health_path = "/health", .sleep_flags = {}, .sleep_levels = {}, .start_timeout = 2min},
    Preset{.health_path = "/health",
           .sleep_flags = kVllmSleepFlags,
           .sleep_levels = kVllmSleepLevels,
           .start_timeout = 10min},
    Preset{.health_path = "/health",
           .sleep_flags = kSglangSleepFlags,
           .sleep_levels = kSglangSleepLevels,
           .start_timeout = 10min},
    Preset{.health_path = "/health", .sleep_flags = {}, .sleep_levels = {}, .start_timeout = 2min},
    Preset{.health_path = "/",
           .sleep_flags = {},
           .sleep_levels = kOllamaSleepLevels,
           .start_timeout = 2min},
    // Its /release_memory is for training: whoever calls it brings the weights back.
    Preset{.health_path = "/health", .sleep_flags = {}, .sleep_levels = {}, .start_timeout = 10min},
    Preset{.health_path = "/health/ready",
           .sleep_flags = kTritonSleepFlags,
           .sleep_levels = kTritonSleepLevels,
           .start_timeout = 10min},
};

void add_variable(EngineConfig& engine, const std::string& name, const std::string& value) {
  const bool set = std::any_of(
      engine.env.begin(), engine.env.end(), [&](const auto& entry) { return entry.first == name; });
  if (!set) {
    engine.env.emplace_back(name, value);
  }
}

/// Engines sleep on accelerators only: vLLM for processors ends at its start when it is asked to.
void add_sleep_flags(EngineConfig& engine) {
  for (const std::string_view flag : preset(engine.kind).sleep_flags) {
    if (!engine.command.empty() && !has_argument(engine.command, flag)) {
      engine.command.emplace_back(flag);
    }
  }
}

std::vector<SuspendLevel> default_levels(const EngineConfig& engine, EngineMemory memory) {
  const Preset& known = preset(engine.kind);
  const bool sleeps =
      !known.sleep_flags.empty() &&
      std::all_of(known.sleep_flags.begin(), known.sleep_flags.end(), [&](std::string_view flag) {
        return has_argument(engine.command, flag) || has_argument(engine.container.args, flag);
      });
  if (sleeps) {
    std::vector<SuspendLevel> levels(known.sleep_levels.begin(), known.sleep_levels.end());
    levels.push_back(SuspendLevel::kStop);
    return levels;
  }
  // It maps its weights from their file: on this machine they can be dropped and read again.
  if (engine.kind == EngineKind::kLlamaServer && memory == EngineMemory::kHost &&
      !engine.command.empty() && !has_argument(engine.command, "--no-mmap") &&
      !has_argument(engine.command, "--mlock")) {
    return {SuspendLevel::kReclaim, SuspendLevel::kStop};
  }
  // Processes on several GPUs talk to each other, which a checkpoint may not survive.
  if (memory == EngineMemory::kGpu && engine.further_devices.empty() && !engine.command.empty()) {
    return {SuspendLevel::kCheckpoint, SuspendLevel::kStop};
  }
  return {SuspendLevel::kStop};
}

}  // namespace

bool has_argument(const std::vector<std::string>& words, std::string_view argument) {
  if (std::find(words.begin(), words.end(), argument) != words.end()) {
    return true;
  }
  const std::size_t equals = argument.find('=');
  if (equals == std::string_view::npos) {
    return false;
  }
  const std::array<std::string_view, 2> apart{argument.substr(0, equals),
                                              argument.substr(equals + 1)};
  return !std::ranges::search(words, apart).empty();
}

const Preset& preset(EngineKind kind) {
  return kPresets.at(static_cast<std::size_t>(kind));
}

EngineKind guess_kind(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    const std::string name = std::filesystem::path(word).filename().string();
    if (name == "vllm" || word.starts_with("vllm.entrypoints")) {
      return EngineKind::kVllm;
    }
    if (name == "sglang" || word.starts_with("sglang.")) {
      return EngineKind::kSglang;
    }
    if (name.starts_with("llama-server")) {
      return EngineKind::kLlamaServer;
    }
    if (name == "ollama") {
      return EngineKind::kOllama;
    }
    if (name == "trtllm-serve" || word == "tensorrt_llm.commands.serve") {
      return EngineKind::kTensorRtLlm;
    }
    if (word.ends_with("openai_frontend/main.py")) {
      return EngineKind::kTriton;
    }
  }
  return EngineKind::kGeneric;
}

std::vector<std::string> preset_command(EngineKind kind,
                                        const std::string& path,
                                        const std::string& id,
                                        std::uint16_t port) {
  const std::string host = "127.0.0.1";
  const std::string number = std::to_string(port);
  std::vector<std::string> words;
  if (kind == EngineKind::kVllm) {
    words = {"vllm", "serve", path, "--served-model-name", id};
  }
  if (kind == EngineKind::kTensorRtLlm) {
    words = {"trtllm-serve", path};
  }
  if (kind == EngineKind::kSglang) {
    words = {
        "python3", "-m", "sglang.launch_server", "--model-path", path, "--served-model-name", id};
  }
  if (!words.empty()) {
    words.insert(words.end(), {"--host", host, "--port", number});
    return words;
  }
  if (kind == EngineKind::kLlamaServer) {
    const std::string from = path.ends_with(".gguf") ? "-m" : "-hf";
    return {"llama-server", from, path, "--host", host, "--port", number};
  }
  return kind == EngineKind::kOllama ? std::vector<std::string>{"ollama", "serve"}
                                     : std::vector<std::string>();
}

void apply_preset(EngineConfig& engine,
                  const std::string& path,
                  const std::string& id,
                  EngineMemory memory) {
  if (!path.empty() && memory != EngineMemory::kHost) {
    add_sleep_flags(engine);
  }
  if (engine.suspend.empty()) {
    engine.suspend = default_levels(engine, memory);
  }
  if (engine.kind == EngineKind::kVllm &&
      std::any_of(engine.suspend.begin(), engine.suspend.end(), spec::sleeps)) {
    add_variable(engine, "VLLM_SERVER_DEV_MODE", "1");  // Without it there is no call to sleep.
  }
  if (engine.elastic_kv) {
    add_variable(engine, "ENABLE_KVCACHED", "true");
    add_variable(engine, "KVCACHED_AUTOPATCH", "1");
  }
  if (engine.kind == EngineKind::kTriton && engine.served_name.empty()) {
    engine.served_name = id;  // It knows models by the names of its repository alone.
  }
  if (path.empty()) {
    return;
  }
  if (engine.kind == EngineKind::kOllama) {
    add_variable(engine, "OLLAMA_HOST", "127.0.0.1:" + std::to_string(engine.upstream.port));
    add_variable(engine, "OLLAMA_KEEP_ALIVE", "-1");  // When it goes is decided here.
  }
  if (engine.served_name.empty() && engine.kind != EngineKind::kLlamaServer &&
      engine.kind != EngineKind::kTensorRtLlm) {
    engine.served_name = engine.kind == EngineKind::kOllama ? path : id;
  }
}

}  // namespace heddle::config
