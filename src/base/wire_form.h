#pragma once

#include <cstddef>
#include <cstdint>

#include "base/describe.h"

/// What the writer and the reader of a wire have in common. Private to base/wire_*.cc.
namespace heddle::wire {

/// How the bytes of a field are told from what follows it.
enum Form : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// How values of a type are there.
inline Form form_of(const Type& type) {
  if (type.kind == Type::Kind::kFloat) {
    return type.bytes == sizeof(float) ? kFixed32 : kFixed64;
  }
  return type.number_like() ? kVarint : kBytes;
}

/// The longest varint [bytes].
inline constexpr std::size_t kVarintBytesMost = 10;

}  // namespace heddle::wire
