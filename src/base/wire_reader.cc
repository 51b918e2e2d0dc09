#include <cstdint>
#include <cstring>
#include <utility>

#include "base/ids.h"
#include "base/wire.h"
#include "base/wire_form.h"

namespace heddle::wire {

namespace {

using Kind = Type::Kind;

template <class T>
void store(void* value, std::uint64_t bits) {
  const auto number = static_cast<T>(bits);
  std::memcpy(value, &number, sizeof(T));
}

constexpr std::int64_t unzigzag(std::uint64_t number) {
  return static_cast<std::int64_t>((number >> 1U) ^ (~(number & 1U) + 1));
}

void put_integer(const Type& type, void* value, std::uint64_t bits) {
  switch (type.bytes) {
    case 1:
      return store<std::uint8_t>(value, bits);
    case 2:
      return store<std::uint16_t>(value, bits);
    case 4:
      return store<std::uint32_t>(value, bits);
    default:
      return store<std::uint64_t>(value, bits);
  }
}

/// Bytes that are taken from the front.
struct Cursor {
  const char* at = nullptr;
  const char* end = nullptr;

  [[nodiscard]] bool empty() const { return at == end; }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end - at); }
};

class Reader {
 public:
  explicit Reader(std::size_t bytes) : memory_left_(kMemoryPerByte * bytes + kMemoryBeside) {}

  [[nodiscard]] Error error(const Type& type) const {
    std::string where = std::string(type.name) + path_;
    if (!type.name.empty() || path_.empty()) {
      where = where.empty() ? where : " " + where;
    } else {
      where.front() = ' ';  // Of a variant, whose alternative begins the path with a dot.
    }
    return {Code::kCorrupt, "message" + where + ": " + wrong_};
  }

  /// Each of these is false after the first thing that is wrong.
  bool fields(const Type& type, Cursor in, std::byte* value) {
    const Field* variant = nullptr;  // That was seen.
    while (!in.empty()) {
      std::uint64_t tag = 0;
      if (!varint(in, tag)) {
        return false;
      }
      const auto form = static_cast<Form>(tag & 7U);
      const Field* const field = type.find(tag >> 3U);
      if (field != nullptr && form == kVarint && field->type->integer_like()) {
        if (!integer(*field, *field->type, in, value + field->offset)) {
          return within(*field);
        }
        continue;
      }
      if (field == nullptr) {
        if (!skip(in, tag >> 3U, form)) {
          return false;
        }
        continue;
      }
      if (!this->field(*field, in, form, value + field->offset)) {
        return within(*field);
      }
      variant = field->type->kind == Kind::kVariant ? field : variant;
    }
    if (type.variant != nullptr && variant == nullptr) {
      return fail("it says nothing") || within(*type.variant);
    }
    return type.holds == nullptr || type.holds(value) || fail("want " + std::string(type.sense));
  }

  bool alternative(const Type& type, Cursor in, void* value) {
    bool there = false;
    while (!in.empty()) {
      std::uint64_t tag = 0;
      Cursor body;
      if (!varint(in, tag)) {
        return false;
      }
      const std::uint64_t number = tag >> 3U;
      std::size_t i = 0;
      while (i < type.alternatives.size() && type.alternatives[i]->number != number) {
        ++i;
      }
      if (i == type.alternatives.size() || there || (tag & 7U) != kBytes) {
        return fail(there ? "more than one message"
                          : "message " + std::to_string(number) + " is not known");
      }
      const Type& one = *type.alternatives[i];
      if (!delimited(in, body) ||
          !fields(one, body, static_cast<std::byte*>(type.choose(value, i)))) {
        path_ = "." + std::string(one.name) + path_;
        return false;
      }
      there = true;
    }
    return there || fail("it says nothing");
  }

 private:
  bool field(const Field& field, Cursor& in, Form form, std::byte* value) {
    const Type* type = field.type;
    if (type->kind == Kind::kOptional) {
      value = static_cast<std::byte*>(type->emplace(value));
      type = type->element;
    }
    if (type->kind == Kind::kList) {
      return list(field, *type, in, form, value);
    }
    if (type->kind == Kind::kMap) {
      bool good = false;
      type->insert(value, [&](void* entries) {
        good = list(field, *type->element, in, form, static_cast<std::byte*>(entries));
      });
      return good;
    }
    return one(field, *type, in, form, value);
  }

  /// A value that is neither optional nor a list.
  bool one(const Field& field, const Type& type, Cursor& in, Form form, std::byte* value) {
    if (form != form_of(type)) {
      return fail("form " + std::to_string(form) + "; want " + std::to_string(form_of(type)));
    }
    Cursor body;
    switch (type.kind) {
      case Kind::kText:
        if (!delimited(in, body)) {
          return false;
        }
        reinterpret_cast<std::string*>(value)->assign(body.at, body.left());
        return true;
      case Kind::kStruct:
        return delimited(in, body) && fields(type, body, value);
      case Kind::kVariant:
        return delimited(in, body) && alternative(type, body, value);
      case Kind::kFloat:
        if (in.left() < type.bytes) {
          return fail("it ends too soon");
        }
        std::memcpy(value, in.at, type.bytes);
        in.at += type.bytes;
        return true;
      default:
        return integer(field, type, in, value);
    }
  }

  bool list(const Field& field, const Type& type, Cursor& in, Form form, std::byte* value) {
    const Type& element = *type.element;
    if (form != kBytes) {
      return fail("form " + std::to_string(form) + "; want " + std::to_string(kBytes));
    }
    if (!element.number_like()) {
      return elements(field, type, in, value);
    }
    Cursor body;
    if (!delimited(in, body)) {
      return false;
    }
    if (element.kind == Kind::kFloat) {
      return floats(type, body, value);
    }
    return packed(field, type, body, value);
  }

  /// An element that is no number, and all that follow it at once.
  bool elements(const Field& field, const Type& type, Cursor& in, std::byte* value) {
    const Type& element = *type.element;
    const std::size_t before = type.list.fixed > 0 ? 0 : type.list.size(value);
    const std::size_t more = 1 + followers(field.number, in);
    std::byte* const first = room(type, before + more, more, value);
    if (first == nullptr) {
      return false;
    }
    for (std::size_t i = before; i < before + more; ++i) {
      std::uint64_t tag = 0;
      if ((i > before && !varint(in, tag)) ||
          !one(field, element, in, kBytes, first + i * element.bytes)) {
        path_ = "[" + std::to_string(i) + "]" + path_;
        return false;
      }
    }
    return true;
  }

  /// How many elements of this field follow the one that begins here, behind its tag.
  std::size_t followers(std::uint32_t number, Cursor in) {
    std::size_t count = 0;
    Cursor ignored;
    std::uint64_t tag = 0;
    while (delimited(in, ignored) && !in.empty() && varint(in, tag) &&
           tag == (number << 3U | kBytes)) {
      ++count;
    }
    wrong_.clear();  // Whoever reads them says what is wrong.
    return count;
  }

  bool floats(const Type& type, Cursor in, std::byte* value) {
    const std::size_t size = in.left() / type.element->bytes;
    if (in.left() % type.element->bytes != 0) {
      return fail("it ends too soon");
    }
    std::byte* const elements = room(type, size, size, value);
    if (elements != nullptr && size > 0) {
      std::memcpy(elements, in.at, in.left());
    }
    return elements != nullptr || size == 0;
  }

  bool packed(const Field& field, const Type& type, Cursor in, std::byte* value) {
    const Type& element = *type.element;
    std::size_t size = 0;
    for (const char* at = in.at; at != in.end; ++at) {
      size += (static_cast<unsigned char>(*at) & 0x80U) == 0 ? 1 : 0;
    }
    std::byte* to = room(type, size, size, value);
    if (to == nullptr && size > 0) {
      return false;
    }
    if (element.kind == Kind::kSigned && element.bytes == sizeof(TokenId)) {
      const auto least = static_cast<TokenId>(field.least);
      for (std::size_t i = 0; i < size; ++i, to += sizeof(TokenId)) {
        std::uint64_t raw = 0;
        if (!varint(in, raw)) {
          return false;
        }
        const std::int64_t number = unzigzag(raw);
        if (number < least || number > static_cast<std::int64_t>(field.most)) {
          return refuse(field, element, raw);
        }
        store<TokenId>(to, static_cast<std::uint64_t>(number));
      }
    } else {
      for (std::size_t i = 0; i < size; ++i, to += element.bytes) {
        if (!integer(field, element, in, to)) {
          return false;
        }
      }
    }
    return in.empty() || fail("it ends too soon");
  }

  bool integer(const Field& field, const Type& type, Cursor& in, std::byte* value) {
    std::uint64_t raw = 0;
    if (!varint(in, raw)) {
      return false;
    }
    if (type.kind == Kind::kSigned) {
      const std::int64_t number = unzigzag(raw);
      if (number < field.least || number > static_cast<std::int64_t>(field.most)) {
        return refuse(field, type, raw);
      }
      put_integer(type, value, static_cast<std::uint64_t>(number));
      return true;
    }
    if (raw > field.most) {
      return refuse(field, type, raw);
    }
    put_integer(type, value, raw);
    return true;
  }

  bool refuse(const Field& field, const Type& type, std::uint64_t raw) {
    const auto most = static_cast<std::int64_t>(field.most);
    return type.kind == Kind::kSigned
               ? fail(std::to_string(unzigzag(raw)) + "; want " + std::to_string(field.least) +
                      " to " + std::to_string(most))
               : fail(std::to_string(raw) + "; the greatest known is " +
                      std::to_string(field.most));
  }

  /// Makes a list that long, `more` of whose elements are new. nullptr where it cannot be.
  std::byte* room(const Type& type, std::size_t size, std::size_t more, std::byte* value) {
    if (type.list.fixed > 0 && size > type.list.fixed) {
      fail("more than " + std::to_string(type.list.fixed) + " values");
      return nullptr;
    }
    const std::size_t bytes = more * type.element->bytes;
    if (bytes > memory_left_) {
      fail("more memory than a message of this length may take");
      return nullptr;
    }
    memory_left_ -= bytes;
    return static_cast<std::byte*>(type.list.resize(value, size));
  }

  [[gnu::always_inline]] bool varint(Cursor& in, std::uint64_t& number) {
    if (in.left() >= 3) [[likely]] {  // Most are of one to three bytes.
      const auto byte = [&in](int i) { return static_cast<std::uint32_t>(in.at[i]) & 0xffU; };
      const std::uint32_t first = byte(0);
      if (first < 0x80U) {
        number = first;
        in.at += 1;
        return true;
      }
      const std::uint32_t two = (first & 0x7fU) | byte(1) << 7U;
      if (byte(1) < 0x80U) {
        number = two;
        in.at += 2;
        return true;
      }
      if (byte(2) < 0x80U) {
        number = (two & 0x3fffU) | byte(2) << 14U;
        in.at += 3;
        return true;
      }
    }
    return long_varint(in, number);
  }
  bool long_varint(Cursor& in, std::uint64_t& number) {
    const char* at = in.at;
    const char* const end = in.left() > kVarintBytesMost ? at + kVarintBytesMost : in.end;
    std::uint64_t value = 0;
    for (unsigned shift = 0; at != end; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at++);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80U) {
        in.at = at;
        number = value;
        return shift < 63 || byte <= 1 || fail("a number of more than 64 bits");
      }
    }
    return fail(end == in.end ? "it ends too soon" : "a number of more than 64 bits");
  }

  bool delimited(Cursor& in, Cursor& body) {
    std::uint64_t bytes = 0;
    if (!varint(in, bytes)) {
      return false;
    }
    if (bytes > in.left()) {
      return fail("it ends too soon");
    }
    body = {in.at, in.at + bytes};
    in.at += bytes;
    return true;
  }

  /// Passes over a field that a newer version has.
  bool skip(Cursor& in, std::uint64_t number, Form form) {
    std::uint64_t ignored = 0;
    Cursor body;
    const std::size_t bytes = form == kFixed64 ? 8 : 4;
    switch (form) {
      case kVarint:
        return number > 0 ? varint(in, ignored) : fail("a field of number 0");
      case kBytes:
        return number > 0 ? delimited(in, body) : fail("a field of number 0");
      case kFixed64:
      case kFixed32:
        if (number == 0 || in.left() < bytes) {
          return fail("it ends too soon");
        }
        in.at += bytes;
        return true;
    }
    return fail("field " + std::to_string(number) + " of unknown form " + std::to_string(form));
  }

  bool fail(std::string what) {
    wrong_ = std::move(what);
    return false;
  }
  /// False: says where something was wrong, from within outwards.
  bool within(const Field& field) {
    path_ = "." + std::string(field.name) + path_;
    return false;
  }

  std::size_t memory_left_;
  std::string path_{};
  std::string wrong_{};
};

}  // namespace

std::optional<Error> decode(const Type& type, std::string_view bytes, void* value) {
  Reader reader(bytes.size());
  const Cursor in{bytes.data(), bytes.data() + bytes.size()};
  const bool good = type.kind == Kind::kVariant
                        ? reader.alternative(type, in, value)
                        : reader.fields(type, in, static_cast<std::byte*>(value));
  return good ? std::optional<Error>() : reader.error(type);
}

}  // namespace heddle::wire
