#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// External engines: other people's servers of the OpenAI API, run as processes.
namespace heddle::spec {

/// How an engine gives up what it holds of a device; later ones free more and cost more.
enum class SuspendLevel : std::uint8_t {
  kFreeze,      ///< Its processes stand still; they keep all their memory.
  kSleep,       ///< Its own call for it (vLLM's /sleep): weights go to host memory.
  kDeepSleep,   ///< Likewise, with its weights dropped; it will have to read them again.
  kReclaim,     ///< Frozen, and pages that files back are given back to the kernel.
  kCheckpoint,  ///< Frozen, with what it had on the device in host memory.
  kStop,        ///< Ended; it will have to be started anew.
};
inline constexpr std::size_t kSuspendLevels = 6;

/// Whose habits an engine has: its health path, its sleep call, its metrics.
enum class EngineKind : std::uint8_t {
  kGeneric,
  kVllm,
  kSglang,
  kLlamaServer,
  kOllama,
  kTensorRtLlm,  ///< trtllm-serve.
  kTriton,       ///< Triton Inference Server behind its OpenAI frontend.
};

/// As in configurations and metric labels: "freeze".
[[nodiscard]] std::string_view name(SuspendLevel level);
/// The inverse.
[[nodiscard]] std::optional<SuspendLevel> suspend_level(std::string_view name);

/// As in configurations: "llama-server".
[[nodiscard]] std::string_view name(EngineKind kind);
[[nodiscard]] std::optional<EngineKind> engine_kind(std::string_view name);

/// Whether the engine itself does it when it is called, while its processes run on.
[[nodiscard]] constexpr bool sleeps(SuspendLevel level) {
  return level == SuspendLevel::kSleep || level == SuspendLevel::kDeepSleep;
}
/// Whether requests that an engine answers survive this: their connections stay, and they go on
/// when it is resumed.
[[nodiscard]] constexpr bool keeps_requests(SuspendLevel level) {
  return !sleeps(level) && level != SuspendLevel::kStop;
}

}  // namespace heddle::spec
