#include "config/presets.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace heddle::config {

namespace {

using spec::EngineKind;
using spec::SuspendLevel;

constexpr std::array kPresets{
    Preset{.health_path = "/health", .sleep_flag = "", .start_timeout = 2min},
    Preset{.health_path = "/health", .sleep_flag = "--enable-sleep-mode", .start_timeout = 10min},
    Preset{.health_path = "/health", .sleep_flag = "--enable-memory-saver", .start_timeout = 10min},
    Preset{.health_path = "/health", .sleep_flag = "", .start_timeout = 2min},
    Preset{.health_path = "/", .sleep_flag = "", .start_timeout = 2min},
};

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void add_variable(EngineConfig& engine, const std::string& name, const std::string& value) {
  const bool set = std::any_of(
      engine.env.begin(), engine.env.end(), [&](const auto& entry) { return entry.first == name; });
  if (!set) {
    engine.env.emplace_back(name, value);
  }
}

std::vector<SuspendLevel> default_levels(const EngineConfig& engine, bool host_memory) {
  const std::string_view flag = preset(engine.kind).sleep_flag;
  const bool sleeps =
      !flag.empty() && (has_word(engine.command, flag) || has_word(engine.container.args, flag));
  if (sleeps) {
    return {SuspendLevel::kSleep, SuspendLevel::kStop};
  }
  // It maps its weights from their file: on this machine they can be dropped and read again.
  if (engine.kind == EngineKind::kLlamaServer && host_memory && !engine.command.empty() &&
      !has_word(engine.command, "--no-mmap") && !has_word(engine.command, "--mlock")) {
    return {SuspendLevel::kReclaim, SuspendLevel::kStop};
  }
  return {SuspendLevel::kStop};
}

}  // namespace

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
  }
  return EngineKind::kGeneric;
}

std::vector<std::string> preset_command(EngineKind kind,
                                        const std::string& path,
                                        const std::string& id,
                                        std::uint16_t port) {
  const std::string host = "127.0.0.1";
  const std::string number = std::to_string(port);
  const std::string flag(preset(kind).sleep_flag);
  if (kind == EngineKind::kVllm) {
    return {
        "vllm", "serve", path, "--served-model-name", id, "--host", host, "--port", number, flag};
  }
  if (kind == EngineKind::kSglang) {
    return {"python3",
            "-m",
            "sglang.launch_server",
            "--model-path",
            path,
            "--served-model-name",
            id,
            "--host",
            host,
            "--port",
            number,
            flag};
  }
  if (kind == EngineKind::kLlamaServer) {
    const std::string from = path.ends_with(".gguf") ? "-m" : "-hf";
    return {"llama-server", from, path, "--host", host, "--port", number};
  }
  return {"ollama", "serve"};
}

void apply_preset(EngineConfig& engine,
                  const std::string& path,
                  const std::string& id,
                  bool host_memory) {
  if (engine.suspend.empty()) {
    engine.suspend = default_levels(engine, host_memory);
  }
  if (engine.kind == EngineKind::kVllm &&
      std::find(engine.suspend.begin(), engine.suspend.end(), SuspendLevel::kSleep) !=
          engine.suspend.end()) {
    add_variable(engine, "VLLM_SERVER_DEV_MODE", "1");  // Without it there is no call to sleep.
  }
  if (path.empty()) {
    return;
  }
  if (engine.kind == EngineKind::kOllama) {
    add_variable(engine, "OLLAMA_HOST", "127.0.0.1:" + std::to_string(engine.upstream.port));
    add_variable(engine, "OLLAMA_KEEP_ALIVE", "-1");  // When it goes is decided here.
  }
  if (engine.served_name.empty() && engine.kind != EngineKind::kLlamaServer) {
    engine.served_name = engine.kind == EngineKind::kOllama ? path : id;
  }
}

}  // namespace heddle::config
