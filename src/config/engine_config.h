#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/http_address.h"
#include "base/time.h"
#include "spec/engine.h"

namespace heddle::config {

using namespace std::chrono_literals;

/// An image that podman (or docker) runs, instead of a command.
struct ContainerConfig {
  std::string image{};                 ///< Empty: the engine is a command.
  std::string runtime = "podman";      ///< The program.
  std::vector<std::string> options{};  ///< Of `podman run`, before the image.
  std::vector<std::string> args{};     ///< After it.
  friend bool operator==(const ContainerConfig&, const ContainerConfig&) = default;
};

/// Changes to the JSON bodies of requests before they are forwarded.
struct RequestFilters {
  std::vector<std::string> strip_params{};  ///< Keys that are left out; never "model".
  /// Keys that are set, to JSON values.
  std::vector<std::pair<std::string, std::string>> set_params{};
  /// Likewise, for requests that name the model by this name or alias.
  std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>
      set_params_by_id{};
  friend bool operator==(const RequestFilters&, const RequestFilters&) = default;
};

enum class SnapshotPolicy : std::uint8_t {
  kOnFirstUse,  ///< Started when the first request comes.
  kOnStart,     ///< Started, probed and, where others need the memory, suspended with the server.
};

/// An external engine: how it is run, and how it gives its memory up. Macros are replaced
/// and paths absolute.
struct EngineConfig {
  spec::EngineKind kind = spec::EngineKind::kGeneric;
  std::vector<std::string> command{};  ///< Program and arguments; empty: container, or none at all
                                       ///< (somebody else runs it, at `upstream`).
  ContainerConfig container{};
  std::vector<std::string> stop_command{};                 ///< Run to end it; empty: SIGTERM.
  std::vector<std::pair<std::string, std::string>> env{};  ///< Added to heddle's own.
  std::string directory{};                                 ///< It is started in.
  HttpAddress upstream{};                                  ///< Where it listens, without TLS.
  /// Answers 200 when it is ready; empty: that the port is open is enough.
  std::string health_path = "/health";
  std::string served_name{};  ///< `model` of forwarded requests; empty: as the client wrote it.
  RequestFilters filters{};
  std::string device{};  ///< By name; empty where a host says that for itself, and has not.
  std::vector<std::string> further_devices{};  ///< That it is on at once beside `device`.
  std::string misfit{};                        ///< Why it cannot be on this host; empty: it can.
  /// Of each of its devices while it runs [bytes]; 0: unknown, it is measured.
  std::uint64_t memory = 0;
  /// Its KV is kvcached's: it grows and shrinks beside `memory`, as it is told.
  bool elastic_kv = false;
  std::uint64_t kv_least = std::uint64_t{1} << 30U;  ///< Of elastic KV, what it always has [bytes].
  /// Cheapest first; ends with kStop. Empty only until its device is known.
  std::vector<spec::SuspendLevel> suspend{};
  SnapshotPolicy snapshot = SnapshotPolicy::kOnFirstUse;
  bool probe = true;  ///< Ask a fixed prompt at the start, and compare after each resume.
  Duration start_timeout = 2min;   ///< From its start to its first healthy answer.
  Duration resume_timeout = 1min;  ///< From a resume to the right answer to the probe.
  Duration stop_timeout = 10s;     ///< From SIGTERM to SIGKILL.
  Duration drain = 2s;          ///< Its requests may end for so long before it is frozen with them.
  Duration response_timeout{};  ///< To the first byte of an answer; 0: limits.request_timeout.
  bool loading_state = false;   ///< Tell clients in the reasoning field that it is being loaded.
  friend bool operator==(const EngineConfig&, const EngineConfig&) = default;
};

/// All devices of the engine by name: "gpu0+gpu1".
[[nodiscard]] inline std::string device_names(const EngineConfig& engine) {
  std::string names = engine.device;
  for (const std::string& further : engine.further_devices) {
    names += "+" + further;
  }
  return names;
}

/// Which engines may be resident together (llama-swap's groups).
struct GroupConfig {
  std::string name{};
  bool swap = true;         ///< One member at a time.
  bool exclusive = true;    ///< A member's start displaces the members of all other groups ...
  bool persistent = false;  ///< ... but for those of persistent ones.
  std::vector<std::string> members{};  ///< Ids of models.
  friend bool operator==(const GroupConfig&, const GroupConfig&) = default;
};

}  // namespace heddle::config
