#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/ids.h"
#include "base/wire.h"
#include "base/wire_form.h"

namespace heddle::wire {

namespace {

using Kind = Type::Kind;

template <class T>
T load(const void* value) {
  T number{};
  std::memcpy(&number, value, sizeof(T));
  return number;
}

constexpr std::uint64_t zigzag(std::int64_t number) {
  return (static_cast<std::uint64_t>(number) << 1U) ^ static_cast<std::uint64_t>(number >> 63);
}

/// What stands on the wire for an integer, a bool or an enumerator.
template <class T>
constexpr std::uint64_t to_varint(T number) {
  if constexpr (std::is_signed_v<T>) {
    return zigzag(number);
  } else {
    return number;
  }
}

/// The same, of one at `value`.
std::uint64_t integer_at(const Type& type, const void* value) {
  if (type.kind == Kind::kSigned) {
    switch (type.bytes) {
      case 1:
        return zigzag(load<std::int8_t>(value));
      case 2:
        return zigzag(load<std::int16_t>(value));
      case 4:
        return zigzag(load<std::int32_t>(value));
      default:
        return zigzag(load<std::int64_t>(value));
    }
  }
  switch (type.bytes) {
    case 1:
      return load<std::uint8_t>(value);
    case 2:
      return load<std::uint16_t>(value);
    case 4:
      return load<std::uint32_t>(value);
    default:
      return load<std::uint64_t>(value);
  }
}

std::uint64_t float_bits(const Type& type, const void* value) {
  return type.bytes == sizeof(float) ? load<std::uint32_t>(value) : load<std::uint64_t>(value);
}

/// Whether a list of numbers is empty, or an array all 0.
bool says_nothing(const Type& type, const void* list) {
  const std::size_t bytes = type.list.fixed * type.element->bytes;
  const auto* const data = static_cast<const std::byte*>(type.list.data(list));
  return type.list.fixed > 0
             ? std::all_of(data, data + bytes, [](std::byte byte) { return byte == std::byte{}; })
             : type.list.size(list) == 0;
}

constexpr std::size_t varint_bytes(std::uint64_t number) {
  return (static_cast<std::size_t>(std::bit_width(number | 1U)) * 9 + 64) / 64;
}

char* put_varint(char* at, std::uint64_t number) {
  for (; number >= 0x80U; number >>= 7U) {
    *at++ = static_cast<char>(number | 0x80U);
  }
  *at++ = static_cast<char>(number);
  return at;
}

class Writer {
 public:
  [[nodiscard]] std::string take() {
    out_.resize(used_);
    return std::move(out_);
  }

  /// The fields of a struct, but those that are 0 or empty, as they are in `initial`, too.
  void fields(const Type& type, const std::byte* value, const std::byte* initial) {
    for (const Field& field : type.fields) {
      const Type& of = *field.type;
      if (of.integer_like()) {
        const std::uint64_t number = integer_at(of, value + field.offset);
        if ((number | integer_at(of, initial + field.offset)) != 0) {
          integer(field.number, number);
        }
      } else {
        this->field(field.number, of, value + field.offset, initial + field.offset);
      }
    }
  }
  void alternative(const Type& type, const void* value) {
    const Chosen chosen = type.chosen(value);
    const Type& one = *type.alternatives[chosen.alternative];
    delimited(one.number, [&] { fields(one, bytes_of(chosen.value), bytes_of(one.initial)); });
  }

  static const std::byte* bytes_of(const void* value) {
    return static_cast<const std::byte*>(value);
  }

 private:
  /// Nothing, where absence says it.
  void field(std::uint32_t number,
             const Type& type,
             const std::byte* value,
             const std::byte* initial) {
    switch (type.kind) {
      case Kind::kText:
        if (!reinterpret_cast<const std::string*>(value)->empty()) {
          whole(number, type, value);
        }
        return;
      case Kind::kStruct: {
        const std::size_t before = used_;
        if (!delimited(number, [&] { fields(type, value, initial); })) {
          used_ = before;
        }
        return;
      }
      case Kind::kOptional:
        if (const void* there = type.peek(value)) {
          whole(number, *type.element, bytes_of(there));
        }
        return;
      case Kind::kList:
        list(number, type, value, initial);
        return;
      case Kind::kMap:
        type.entries(value, [&](const void* entries) {
          list(number, *type.element, bytes_of(entries), nullptr);
        });
        return;
      case Kind::kVariant:
        whole(number, type, value);
        return;
      default:
        if (float_bits(type, value) != 0 || float_bits(type, initial) != 0) {
          whole(number, type, value);
        }
    }
  }

  /// A value, whatever it is.
  void whole(std::uint32_t number, const Type& type, const std::byte* value) {
    switch (type.kind) {
      case Kind::kText: {
        const auto& text = *reinterpret_cast<const std::string*>(value);
        tag(number, kBytes);
        varint(text.size());
        put(text.data(), text.size());
        return;
      }
      case Kind::kStruct:
        delimited(number, [&] { fields(type, value, bytes_of(type.initial)); });
        return;
      case Kind::kVariant:
        delimited(number, [&] { alternative(type, value); });
        return;
      case Kind::kFloat:
        tag(number, form_of(type));
        put(value, type.bytes);
        return;
      default:
        integer(number, integer_at(type, value));
    }
  }

  void integer(std::uint32_t number, std::uint64_t value) {
    char* const start = room(2 * kVarintBytesMost);
    char* const at = put_varint(put_varint(start, number << 3U | kVarint), value);
    used_ += static_cast<std::size_t>(at - start);
  }

  void list(std::uint32_t number,
            const Type& type,
            const std::byte* value,
            const std::byte* initial) {
    const std::size_t size = type.list.size(value);
    const Type& element = *type.element;
    const std::byte* elements = bytes_of(type.list.data(value));
    if (!element.number_like()) {
      return wholes(number, type, elements, size);
    }
    if (says_nothing(type, value) && says_nothing(type, initial)) {
      return;
    }
    delimited(number, [&] {
      if (element.kind == Kind::kFloat) {
        put(elements, size * element.bytes);
      } else if (element.kind == Kind::kSigned && element.bytes == sizeof(TokenId)) {
        packed<TokenId>(elements, size);
      } else if (element.kind == Kind::kUnsigned && element.bytes == sizeof(std::uint64_t)) {
        packed<std::uint64_t>(elements, size);
      } else {
        for (std::size_t i = 0; i < size; ++i) {
          varint(integer_at(element, elements + i * element.bytes));
        }
      }
    });
  }

  /// Elements that are no numbers. Of an array, whose elements are counted from the first, those at
  /// its end that say nothing are left out.
  void wholes(std::uint32_t number, const Type& type, const std::byte* elements, std::size_t size) {
    const Type& element = *type.element;
    const std::size_t empty = varint_bytes(number << 3U) + 1;
    std::size_t said = used_;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t before = used_;
      whole(number, element, elements + i * element.bytes);
      said = used_ - before > empty ? used_ : said;
    }
    if (type.list.fixed > 0) {
      used_ = said;
    }
  }

  /// Most lists of numbers are of tokens or of ids.
  template <class T>
  void packed(const std::byte* elements, std::size_t size) {
    char* const start = room(size * kVarintBytesMost);
    char* at = start;
    for (std::size_t i = 0; i < size; ++i) {
      at = put_varint(at, to_varint(load<T>(elements + i * sizeof(T))));
    }
    used_ += static_cast<std::size_t>(at - start);
  }

  /// What `write` writes, behind its length. Whether it was anything.
  template <class Write>
  bool delimited(std::uint32_t number, const Write& write) {
    tag(number, kBytes);
    room(1);
    const std::size_t start = ++used_;
    write();
    const std::size_t bytes = used_ - start;
    const std::size_t more = varint_bytes(bytes) - 1;
    if (more > 0) {  // One byte was left for the length.
      room(more);
      std::memmove(out_.data() + start + more, out_.data() + start, bytes);
      used_ += more;
    }
    put_varint(out_.data() + start - 1, bytes);
    return bytes > 0;
  }

  void put(const void* bytes, std::size_t count) {
    if (count > 0) {
      std::memcpy(room(count), bytes, count);
      used_ += count;
    }
  }
  void tag(std::uint32_t number, Form form) { varint(number << 3U | form); }
  void varint(std::uint64_t number) {
    char* const at = room(kVarintBytesMost);
    used_ += static_cast<std::size_t>(put_varint(at, number) - at);
  }
  /// Where the next bytes go, which are so many.
  char* room(std::size_t bytes) {
    if (used_ + bytes > out_.size()) [[unlikely]] {
      out_.resize(2 * (used_ + bytes) + 108);
    }
    return out_.data() + used_;
  }

  std::string out_{};  ///< Longer than what was written.
  std::size_t used_ = 0;
};

}  // namespace

std::string encode(const Type& type, const void* value) {
  Writer writer;
  if (type.kind == Kind::kVariant) {
    writer.alternative(type, value);
  } else {
    writer.fields(type, Writer::bytes_of(value), Writer::bytes_of(type.initial));
  }
  return writer.take();
}

}  // namespace heddle::wire
