#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/describe.h"
#include "base/rng.h"

namespace heddle::test {

/// Sets a described value to something random that makes sense and, wherever it can, differs from
/// what it is by default: for tests that must not forget a field.
class Filler {
 public:
  explicit Filler(std::uint64_t seed) : rng_(seed) {}

  void fill(const Type& type, void* value, const Range& range = {}) {
    using Kind = Type::Kind;
    switch (type.kind) {
      case Kind::kBool:
        *static_cast<bool*>(value) = true;
        return;
      case Kind::kFloat:
        return type.bytes == sizeof(float) ? put(value, 0.25F + static_cast<float>(rng_.below(99)))
                                           : put(value, 0.1 + static_cast<double>(rng_.below(99)));
      case Kind::kText:
        *static_cast<std::string*>(value) = "text " + std::to_string(rng_.below(1000)) + "\n\"\xff";
        return;
      case Kind::kStruct:
        return fill_struct(type, value);
      case Kind::kOptional:
        return fill(*type.element, type.emplace(value), range);
      case Kind::kList:
        return fill_list(type, value, range);
      case Kind::kMap:
        return type.insert(value, [&](void* entries) { fill_list(*type.element, entries, range); });
      case Kind::kVariant: {
        const std::size_t which = rng_.below(type.alternatives.size());
        return fill(*type.alternatives[which], type.choose(value, which));
      }
      default:
        return fill_integer(type, value, range);
    }
  }

 private:
  template <class T>
  static void put(void* value, T number) {
    std::memcpy(value, &number, sizeof(T));
  }

  void fill_integer(const Type& type, void* value, const Range& range) {
    // Few of them, so that what must hold between two fields often does.
    std::uint64_t number = 1 + rng_.below(100);
    if (type.kind == Type::Kind::kEnum) {
      number =
          type.values.size() - 1 - rng_.below(std::max<std::size_t>(1, type.values.size() - 1));
    } else if (type.bytes == 8 && range.most == Range{}.most && rng_.below(4) == 0) {
      number = rng_.next() >> 1U;
    }
    auto wide = static_cast<std::int64_t>(number);
    if (type.kind == Type::Kind::kSigned && range.least < 0 && rng_.below(3) == 0) {
      wide = std::max(-wide, range.least);
    }
    wide = std::min(wide, range.most);
    std::memcpy(value, &wide, type.bytes);  // Little endian.
  }

  void fill_struct(const Type& type, void* value) {
    for (int tries = 0; tries < 1000; ++tries) {
      for (const Field& field : type.fields) {
        fill(*field.type, static_cast<std::byte*>(value) + field.offset, field.range);
      }
      if (type.holds == nullptr || type.holds(value)) {
        return;
      }
    }
    HEDDLE_CHECK(false);
  }

  void fill_list(const Type& type, void* value, const Range& range) {
    const std::size_t size = type.list.fixed > 0 ? type.list.fixed : 1 + rng_.below(3);
    void* const elements = type.list.resize(value, size);
    for (std::size_t i = 0; i < size; ++i) {
      fill(*type.element, static_cast<std::byte*>(elements) + i * type.element->bytes, range);
    }
  }

  Rng rng_;
};

}  // namespace heddle::test
