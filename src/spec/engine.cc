#include "spec/engine.h"

#include <algorithm>

namespace heddle::spec {
namespace {

constexpr std::array<std::string_view, kSuspendLevels> kLevelNames{
    "freeze", "sleep", "deep_sleep", "reclaim", "checkpoint", "stop"};
constexpr std::array<std::string_view, 7> kKindNames{
    "generic", "vllm", "sglang", "llama-server", "ollama", "trtllm-serve", "triton"};

template <class Enum, std::size_t N>
std::optional<Enum> named(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<Enum>(found - names.begin()));
}

}  // namespace

std::string_view name(SuspendLevel level) {
  return kLevelNames.at(static_cast<std::size_t>(level));
}

std::optional<SuspendLevel> suspend_level(std::string_view name) {
  return named<SuspendLevel>(kLevelNames, name);
}

std::string_view name(EngineKind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind));
}

std::optional<EngineKind> engine_kind(std::string_view name) {
  return named<EngineKind>(kKindNames, name);
}

}  // namespace heddle::spec
