#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace heddle {

/// The name of a type, without its namespaces.
template <class T>
[[nodiscard]] constexpr std::string_view type_name() {
  std::string_view name = __PRETTY_FUNCTION__;  // "... [T = heddle::log::Level]".
  name.remove_prefix(name.find("T = ") + std::string_view("T = ").size());
  name = name.substr(0, name.find_first_of(";]"));
  return name.substr(name.rfind(':') + 1);
}

/// The name of an enumerator, as written in its enum; empty for a value that none has.
template <auto kValue>
[[nodiscard]] constexpr std::string_view enumerator_name() {
  // "... [kValue = heddle::log::Level::kInfo]", or "... [kValue = (heddle::log::Level)9]".
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("kValue = ") + std::string_view("kValue = ").size());
  name = name.substr(0, name.find_first_of(";]"));
  return name.front() == '(' ? std::string_view() : name.substr(name.rfind(':') + 1);
}

/// How many enumerators an enum has from 0 upwards without a gap.
template <class Enum, std::size_t kFrom = 0>
[[nodiscard]] constexpr std::size_t enumerator_count() {
  static_assert(std::is_unsigned_v<std::underlying_type_t<Enum>>);
  if constexpr (enumerator_name<static_cast<Enum>(kFrom)>().empty()) {
    return kFrom;
  } else {
    return enumerator_count<Enum, kFrom + 1>();
  }
}

/// The names of these enumerators, in order.
template <class Enum>
inline constexpr auto kEnumerators = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I)>{enumerator_name<static_cast<Enum>(I)>()...};
}(std::make_index_sequence<enumerator_count<Enum>()>{});

}  // namespace heddle
