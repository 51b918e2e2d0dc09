#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "core/agent_core.h"
#include "core/engines_core.h"
#include "core/manager/manager_core.h"
#include "core/worker_core.h"

namespace heddle::core::test {

template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

/// The T that `value` is, or that it carries to somebody else; null if it is none.
template <class T, class Value>
const T* find_in(const Value& value) {
  if constexpr (std::is_same_v<T, Value>) {
    return &value;
  } else if constexpr (is_variant<Value>) {
    return std::visit([](const auto& concrete) { return find_in<T>(concrete); }, value);
  } else if constexpr (std::is_same_v<Value, Report> || std::is_same_v<Value, WorkerSaid>) {
    return find_in<T>(value.report);
  } else if constexpr (std::is_same_v<Value, SendWorker>) {
    return find_in<T>(value.message);
  } else if constexpr (std::is_same_v<Value, TellManager>) {
    return find_in<T>(value.event);
  } else {
    return nullptr;
  }
}

/// The first of these commands that is, or carries, a T; null if there is none.
template <class T, class Command>
const T* find(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (const T* found = find_in<T>(command)) {
      return found;
    }
  }
  return nullptr;
}

}  // namespace heddle::core::test
