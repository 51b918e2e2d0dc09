#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "config/engine_config.h"

namespace heddle::config {

/// What is known of a kind of engine before its configuration is read.
struct Preset {
  std::string_view health_path;
  /// Arguments without which it cannot sleep, or not wake as it was; empty: it never can.
  std::span<const std::string_view> sleep_flags;
  /// By which calls of its own it may be suspended, cheapest first.
  std::span<const spec::SuspendLevel> sleep_levels;
  Duration start_timeout{};  ///< What it may take to start, unless the file says.
};
[[nodiscard]] const Preset& preset(spec::EngineKind kind);

/// Whether a command line has an argument; "--name=value" may also be two words.
[[nodiscard]] bool has_argument(const std::vector<std::string>& words, std::string_view argument);

/// Of what kind the engine is that a command line starts, by the names in it.
[[nodiscard]] spec::EngineKind guess_kind(const std::vector<std::string>& command);

/// The command line that has an engine serve the checkpoint or model name `path` as `id` on a port
/// of the loopback interface. Empty for kGeneric, and for kTriton, whose frontend is no program on
/// the path.
[[nodiscard]] std::vector<std::string> preset_command(spec::EngineKind kind,
                                                      const std::string& path,
                                                      const std::string& id,
                                                      std::uint16_t port);

/// Where the memory is that an engine is charged for.
enum class EngineMemory : std::uint8_t {
  kHost,     ///< This machine's own, of which no engine sleeps.
  kGpu,      ///< A GPU of this machine, whose driver may move it to the host.
  kCounted,  ///< Of a device that is only counted, or not known.
};

/// Completes `engine` with what its kind and its command imply: the arguments that sleeping takes,
/// levels when it names none, the variables that sleeping and addresses take, the name it serves.
/// `path` and `id` as above; an empty path means that the command is the user's own.
void apply_preset(EngineConfig& engine,
                  const std::string& path,
                  const std::string& id,
                  EngineMemory memory);

}  // namespace heddle::config
