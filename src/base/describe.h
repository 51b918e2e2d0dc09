#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/enumerators.h"
#include "base/time.h"

/// One description of a message, from which everything else is made: its bytes on a wire
/// (base/wire.h), its line in an event log (base/json_line.h).
///
/// A struct is described by a function beside it, which names and numbers each field:
///
///     inline void fields(Fields& v, ImageProgress& x) {
///       v.message(23, "ImageProgress");
///       v(1, "model", x.model);
///       v(2, "bytes", x.bytes);
///     }
///
/// The first use of type_of<ImageProgress>() calls it once and keeps a table of what it said. What
/// writes and reads messages is plain code over such tables, compiled once for all messages.
///
/// Fields may be bools, integers, floats, enums (contiguous from 0), strings, ids, durations and
/// instants; described structs; pairs; variants of described messages; and an optional, a vector,
/// an array or a map of these. Numbers are for ever: docs/contracts/wire.md has the rules.
namespace heddle {

struct Type;

/// Which values of a number, or of the numbers of a list, are sensible.
struct Range {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
/// Of what is counted.
inline constexpr Range kCount{.least = 0};

/// A field of a struct, as described.
struct Field {
  std::uint32_t number = 0;
  std::string_view name{};
  std::size_t offset = 0;  ///< Within its struct [bytes].
  const Type* type = nullptr;
  Range range{};
  /// What `range` and the type of an integer, or of those it holds, leave: signed ones may be from
  /// `least`; others from 0.
  std::int64_t least = 0;
  std::uint64_t most = 0;
};

/// How vectors and arrays are had element by element.
struct ListAccess {
  std::size_t (*size)(const void* list) = nullptr;
  const void* (*data)(const void* list) = nullptr;
  /// Makes a vector that long, new elements as they are by default. The first element.
  void* (*resize)(void* list, std::size_t size) = nullptr;
  std::size_t fixed = 0;  ///< Of an array: its length, whatever `resize` is told; 0: a vector.
};

/// What a variant holds: which of its alternatives, those of variants within it counted, too.
struct Chosen {
  std::size_t alternative = 0;
  const void* value = nullptr;
};

/// A type as its description says. Which members mean something depends on `kind`.
struct Type {
  enum class Kind : std::uint8_t {
    kBool,
    kUnsigned,  ///< Also ids.
    kSigned,    ///< Also durations and instants, in nanoseconds.
    kEnum,
    kFloat,
    kText,
    kStruct,
    kOptional,
    kList,
    kMap,
    kVariant,
  };

  Kind kind = Kind::kBool;
  std::size_t bytes = 0;                       ///< sizeof.
  std::string_view name{};                     ///< Of a struct or an enum.
  std::span<const std::string_view> values{};  ///< Of an enum: its enumerators.

  // Of structs.
  std::uint32_t number = 0;  ///< Of a message, as an alternative of any variant; 0: it is none.
  bool pair = false;         ///< Without names.
  std::vector<Field> fields{};
  const void* initial = nullptr;               ///< One as it is before anything is said of it.
  bool (*holds)(const void* value) = nullptr;  ///< Whether it makes sense; nullptr: always.
  std::string_view sense{};                    ///< What it must be, for people.

  // Of optionals, lists, maps (whose element is a vector of pairs) and variants.
  const Type* element = nullptr;
  const void* (*peek)(const void* optional) = nullptr;  ///< nullptr: it is empty.
  void* (*emplace)(void* optional) = nullptr;
  ListAccess list{};
  /// Calls with a vector of a map's entries; calls to fill such a vector and adds its entries.
  void (*entries)(const void* map, const std::function<void(const void*)>& use) = nullptr;
  void (*insert)(void* map, const std::function<void(void*)>& fill) = nullptr;
  std::vector<const Type*> alternatives{};
  Chosen (*chosen)(const void* variant) = nullptr;
  void* (*choose)(void* variant, std::size_t alternative) = nullptr;

  /// Whether it is one whole number on the wire.
  [[nodiscard]] bool integer_like() const { return kind <= Kind::kEnum; }
  /// Whether lists of it are one run of numbers on the wire.
  [[nodiscard]] bool number_like() const { return kind <= Kind::kFloat; }
  /// The field of this number, or nullptr.
  [[nodiscard]] const Field* find(std::uint64_t field_number) const {
    const bool near = field_number < by_number.size();
    const std::int16_t index = near ? by_number[field_number] : std::int16_t{-1};
    return index < 0 ? nullptr : &fields[static_cast<std::size_t>(index)];
  }
  const Field* variant = nullptr;         ///< The one that is a variant; there is at most one.
  std::vector<std::int16_t> by_number{};  ///< Index into `fields`; -1: none.
};

/// The table of a type; made at the first call. Any thread.
template <class T>
[[nodiscard]] const Type& type_of();

/// What a description is said to; see above.
class Fields {
 public:
  Fields(Type& type, const void* value) : type_(type), value_(value) {}

  /// The name of a struct that is part of messages.
  void type(std::string_view name) { type_.name = name; }
  /// The name of a message and its number, which no other message has.
  void message(std::uint32_t number, std::string_view name) {
    type_.number = number;
    type_.name = name;
  }
  /// The next field. Its name stands in event logs, its number on the wire. `range`: what whoever
  /// reads it from a wire accepts.
  template <class T>
  void operator()(std::uint32_t number, std::string_view name, T& field, Range range = {}) {
    add({.number = number,
         .name = name,
         .offset = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&field) -
                                            static_cast<const std::byte*>(value_)),
         .type = &type_of<T>(),
         .range = range});
  }
  /// What must hold of `x` where it comes from a wire, beside the ranges of its fields. `sense`
  /// says it for people: "a rank below ranks"; `holds` is a lambda of T that captures nothing.
  template <class T, class Holds>
  void require(const T& /*x*/, std::string_view sense, Holds /*holds*/) {
    type_.sense = sense;
    type_.holds = [](const void* value) { return Holds{}(*static_cast<const T*>(value)); };
  }

 private:
  void add(Field field);

  Type& type_;
  const void* value_;
};

namespace described {

template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <template <class...> class Template, class... Args>
inline constexpr bool kIs<Template<Args...>, Template> = true;
template <class T>
inline constexpr std::size_t kArrayLength = 0;
template <class T, std::size_t N>
inline constexpr std::size_t kArrayLength<std::array<T, N>> = N;
template <class T>
inline constexpr bool kIsArray = kArrayLength<T> > 0;

template <class T>
concept IdType = requires(const T& id) {
  { id.value() } -> std::same_as<std::uint64_t>;
} && sizeof(T) == sizeof(std::uint64_t);

template <class T>
inline constexpr std::size_t kLeaves = 1;
template <class... Alternatives>
inline constexpr std::size_t kLeaves<std::variant<Alternatives...>> = (kLeaves<Alternatives> + ...);

template <class T>
Chosen leaf(const T& value, std::size_t before) {
  return {before, &value};
}
template <class... Alternatives>
Chosen leaf(const std::variant<Alternatives...>& value, std::size_t before) {
  Chosen chosen;
  (void)([&] {
    if (const auto* alternative = std::get_if<Alternatives>(&value)) {
      chosen = leaf(*alternative, before);
      return true;
    }
    before += kLeaves<Alternatives>;
    return false;
  }() || ...);
  return chosen;
}

template <class T>
void* make_leaf(T& value, std::size_t /*alternative*/) {
  return &value;
}
template <class... Alternatives>
void* make_leaf(std::variant<Alternatives...>& value, std::size_t alternative) {
  void* made = nullptr;
  (void)([&] {
    if (alternative < kLeaves<Alternatives>) {
      made = make_leaf(value.template emplace<Alternatives>(), alternative);
      return true;
    }
    alternative -= kLeaves<Alternatives>;
    return false;
  }() || ...);
  return made;
}

template <class T>
void add_leaves(std::vector<const Type*>& types, const T* /*of what*/) {
  types.push_back(&type_of<T>());
}
template <class... Alternatives>
void add_leaves(std::vector<const Type*>& types, const std::variant<Alternatives...>* /*of*/) {
  (add_leaves(types, static_cast<const Alternatives*>(nullptr)), ...);
}

/// CHECK-fails if it cannot be one: numbers that are there twice, contents that cannot be absent.
void finish_struct(Type& type);
void finish_optional(const Type& type);
void finish_list(const Type& type);
void finish_variant(const Type& type);

template <class T>
Type number_type() {
  using Kind = Type::Kind;
  if constexpr (std::is_same_v<T, bool>) {
    return {.kind = Kind::kBool, .bytes = 1};
  } else if constexpr (std::is_enum_v<T>) {
    return {
        .kind = Kind::kEnum, .bytes = sizeof(T), .name = type_name<T>(), .values = kEnumerators<T>};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {.kind = Kind::kFloat, .bytes = sizeof(T)};
  } else {
    constexpr bool kUnsigned = IdType<T> || std::is_unsigned_v<T>;
    return {.kind = kUnsigned ? Kind::kUnsigned : Kind::kSigned, .bytes = sizeof(T)};
  }
}

template <class T>
Type struct_type() {
  static const T initial{};
  Type type{.kind = Type::Kind::kStruct, .bytes = sizeof(T), .initial = &initial};
  T value{};
  Fields visitor(type, &value);
  if constexpr (kIs<T, std::pair>) {
    type.pair = true;
    visitor(1, "first", value.first);
    visitor(2, "second", value.second);
  } else {
    fields(visitor, value);
  }
  finish_struct(type);
  return type;
}

template <class T>
Type optional_type() {
  const Type type{
      .kind = Type::Kind::kOptional,
      .bytes = sizeof(T),
      .element = &type_of<typename T::value_type>(),
      .peek = [](const void* optional) -> const void* {
        const auto& value = *static_cast<const T*>(optional);
        return value.has_value() ? &*value : nullptr;
      },
      .emplace = [](void* optional) -> void* { return &static_cast<T*>(optional)->emplace(); }};
  finish_optional(type);
  return type;
}

template <class T>
Type list_type() {
  const Type type{
      .kind = Type::Kind::kList,
      .bytes = sizeof(T),
      .element = &type_of<typename T::value_type>(),
      .list = {.size = [](const void* list) { return static_cast<const T*>(list)->size(); },
               .data = [](const void* list) -> const void* {
                 return static_cast<const T*>(list)->data();
               },
               .resize = [](void* list, std::size_t size) -> void* {
                 auto& values = *static_cast<T*>(list);
                 if constexpr (!kIsArray<T>) {
                   values.resize(size);
                 }
                 return values.data();
               },
               .fixed = kArrayLength<T>}};
  finish_list(type);
  return type;
}

template <class T>
Type map_type() {
  using Entries = std::vector<std::pair<typename T::key_type, typename T::mapped_type>>;
  return {.kind = Type::Kind::kMap,
          .bytes = sizeof(T),
          .element = &type_of<Entries>(),
          .entries =
              [](const void* map, const std::function<void(const void*)>& use) {
                const auto& values = *static_cast<const T*>(map);
                const Entries entries(values.begin(), values.end());
                use(&entries);
              },
          .insert =
              [](void* map, const std::function<void(void*)>& fill) {
                Entries entries;
                fill(&entries);
                for (auto& entry : entries) {
                  static_cast<T*>(map)->insert(std::move(entry));
                }
              }};
}

template <class T>
Type variant_type() {
  Type type{.kind = Type::Kind::kVariant,
            .bytes = sizeof(T),
            .chosen = [](const void* variant) { return leaf(*static_cast<const T*>(variant), 0); },
            .choose =
                [](void* variant, std::size_t alternative) {
                  return make_leaf(*static_cast<T*>(variant), alternative);
                }};
  add_leaves(type.alternatives, static_cast<const T*>(nullptr));
  finish_variant(type);
  return type;
}

template <class T>
Type make_type() {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Duration> ||
                std::is_same_v<T, Instant> || IdType<T>) {
    return number_type<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {.kind = Type::Kind::kText, .bytes = sizeof(T)};
  } else if constexpr (kIs<T, std::optional>) {
    return optional_type<T>();
  } else if constexpr (kIs<T, std::vector> || kIsArray<T>) {
    return list_type<T>();
  } else if constexpr (kIs<T, std::map>) {
    return map_type<T>();
  } else if constexpr (kIs<T, std::variant>) {
    return variant_type<T>();
  } else {
    return struct_type<T>();
  }
}

}  // namespace described

template <class T>
const Type& type_of() {
  static const Type type = described::make_type<T>();
  return type;
}

}  // namespace heddle
