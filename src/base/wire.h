#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/describe.h"
#include "base/result.h"

/// Described messages (base/describe.h) as bytes: the wire format of protocol buffers, by which
/// versions of a program that know different fields understand each other. docs/contracts/wire.md
/// says what each kind of field looks like and what both sides may change.
namespace heddle::wire {

/// How much memory the lists of a message may take for each of its bytes, and beside that: more
/// than any that makes sense.
inline constexpr std::size_t kMemoryPerByte = 16;
inline constexpr std::size_t kMemoryBeside = std::size_t{4} << 20U;

/// A struct's fields, or the alternative of a variant. A field that is 0 or empty is left out where
/// it is so by default.
[[nodiscard]] std::string encode(const Type& type, const void* value);

/// Reads into `value`, which is as it is by default. What was wrong, if anything: kCorrupt, with
/// the path of the field. Unknown fields are skipped, absent ones stay as they are. Unknown
/// alternatives and enumerators, numbers out of their range and malformed bytes are refused. Trusts
/// nothing.
[[nodiscard]] std::optional<Error> decode(const Type& type, std::string_view bytes, void* value);

template <class T>
[[nodiscard]] std::string encode(const T& value) {
  return encode(type_of<T>(), &value);
}

template <class T>
[[nodiscard]] Result<T> decode(std::string_view bytes) {
  T value{};
  if (std::optional<Error> error = decode(type_of<T>(), bytes, &value)) {
    return std::move(*error);
  }
  return value;
}

}  // namespace heddle::wire
