#include "base/json_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>

namespace heddle {

namespace {

using Kind = Type::Kind;

const void* at_offset(const void* value, std::size_t offset) {
  return static_cast<const std::byte*>(value) + offset;
}
void* at_offset(void* value, std::size_t offset) {
  return static_cast<std::byte*>(value) + offset;
}

// ---- Writing ----

template <class T>
void write_as(const void* value, std::string& out) {
  std::array<char, 32> digits{};
  const T number = *static_cast<const T*>(value);
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

void write_number(const Type& type, const void* value, std::string& out) {
  if (type.kind == Kind::kFloat) {
    return type.bytes == sizeof(float) ? write_as<float>(value, out) : write_as<double>(value, out);
  }
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.bytes) {
    case 1:
      return is_signed ? write_as<std::int8_t>(value, out) : write_as<std::uint8_t>(value, out);
    case 2:
      return is_signed ? write_as<std::int16_t>(value, out) : write_as<std::uint16_t>(value, out);
    case 4:
      return is_signed ? write_as<std::int32_t>(value, out) : write_as<std::uint32_t>(value, out);
    default:
      return is_signed ? write_as<std::int64_t>(value, out) : write_as<std::uint64_t>(value, out);
  }
}

void write_text(std::string_view text, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      out += "\\u00";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_struct(const Type& type, const void* value, std::string& out) {
  char before = type.pair ? '[' : '{';
  for (const Field& field : type.fields) {
    out += before;
    before = ',';
    if (!type.pair) {
      out += '"';
      out += field.name;
      out += "\":";
    }
    write_json_line(*field.type, at_offset(value, field.offset), out);
  }
  out += type.pair ? "]" : type.fields.empty() ? "{}" : "}";
}

void write_list(const Type& type, const void* value, std::string& out) {
  const void* elements = type.list.data(value);
  const std::size_t size = type.list.size(value);
  for (std::size_t i = 0; i < size; ++i) {
    out += i == 0 ? '[' : ',';
    write_json_line(*type.element, at_offset(elements, i * type.element->bytes), out);
  }
  out += size == 0 ? "[]" : "]";
}

void write_variant(const Type& type, const void* value, std::string& out) {
  const Chosen chosen = type.chosen(value);
  const Type& one = *type.alternatives[chosen.alternative];
  out += "{\"";
  out += one.name;
  out += "\":";
  write_struct(one, chosen.value, out);
  out += '}';
}

}  // namespace

void write_json_line(const Type& type, const void* value, std::string& out) {
  switch (type.kind) {
    case Kind::kBool:
      out += *static_cast<const bool*>(value) ? "true" : "false";
      return;
    case Kind::kText:
      return write_text(*static_cast<const std::string*>(value), out);
    case Kind::kStruct:
      return write_struct(type, value, out);
    case Kind::kOptional:
      if (const void* there = type.peek(value)) {
        return write_json_line(*type.element, there, out);
      }
      out += "null";
      return;
    case Kind::kList:
      return write_list(type, value, out);
    case Kind::kMap:
      return type.entries(value,
                          [&](const void* entries) { write_list(*type.element, entries, out); });
    case Kind::kVariant:
      return write_variant(type, value, out);
    default:
      return write_number(type, value, out);
  }
}

// ---- Reading ----

void JsonLineReader::expect(std::string_view literal) {
  if (!accept(literal)) {
    fail(literal);
  }
}

void JsonLineReader::read(const Type& type, void* value) {
  if (error_) {
    return;
  }
  switch (type.kind) {
    case Kind::kBool: {
      const bool yes = accept("true");
      *static_cast<bool*>(value) = yes;
      return yes ? void() : expect("false");
    }
    case Kind::kText:
      return read_text(*static_cast<std::string*>(value));
    case Kind::kStruct:
      return read_struct(type, value);
    case Kind::kOptional:
      return accept("null") ? void() : read(*type.element, type.emplace(value));
    case Kind::kList:
      return read_list(type, value);
    case Kind::kMap:
      return type.insert(value, [&](void* entries) { read_list(*type.element, entries); });
    case Kind::kVariant:
      return read_variant(type, value);
    default:
      return read_number(type, value);
  }
}

std::optional<Error> JsonLineReader::finish() {
  if (!error_ && !rest_.empty()) {
    fail("the end");
  }
  return error_;
}

bool JsonLineReader::accept(std::string_view literal) {
  if (error_ || !rest_.starts_with(literal)) {
    return false;
  }
  rest_.remove_prefix(literal.size());
  return true;
}

void JsonLineReader::fail(std::string_view expected) {
  if (!error_) {
    error_ =
        Error{Code::kCorrupt,
              "event log, column " + std::to_string(size_ - rest_.size() + 1) + ": expected " +
                  std::string(expected) + ", found '" + std::string(rest_.substr(0, 20)) + "'"};
  }
}

template <class T>
void JsonLineReader::read_as(void* value) {
  const auto [end, status] =
      std::from_chars(rest_.data(), rest_.data() + rest_.size(), *static_cast<T*>(value));
  if (status != std::errc{}) {
    fail("a number");
    return;
  }
  rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
}

void JsonLineReader::read_number(const Type& type, void* value) {
  if (type.kind == Kind::kFloat) {
    return type.bytes == sizeof(float) ? read_as<float>(value) : read_as<double>(value);
  }
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.bytes) {
    case 1:
      return is_signed ? read_as<std::int8_t>(value) : read_as<std::uint8_t>(value);
    case 2:
      return is_signed ? read_as<std::int16_t>(value) : read_as<std::uint16_t>(value);
    case 4:
      return is_signed ? read_as<std::int32_t>(value) : read_as<std::uint32_t>(value);
    default:
      return is_signed ? read_as<std::int64_t>(value) : read_as<std::uint64_t>(value);
  }
}

void JsonLineReader::read_text(std::string& value) {
  expect("\"");
  while (!error_ && !accept("\"")) {
    if (rest_.empty()) {
      fail("\"");
    } else if (accept("\\u")) {
      unsigned byte = 0;
      const char* const end = rest_.data() + std::min<std::size_t>(4, rest_.size());
      if (std::from_chars(rest_.data(), end, byte, 16).ptr != rest_.data() + 4) {
        fail("four hexadecimal digits");
        return;
      }
      value += static_cast<char>(byte);
      rest_.remove_prefix(4);
    } else {
      value += rest_.front();
      rest_.remove_prefix(1);
    }
  }
}

void JsonLineReader::read_struct(const Type& type, void* value) {
  expect(type.pair ? "[" : "{");
  bool first = true;
  for (const Field& field : type.fields) {
    if (!first) {
      expect(",");
    }
    first = false;
    if (!type.pair) {
      expect("\"");
      expect(field.name);
      expect("\":");
    }
    read(*field.type, at_offset(value, field.offset));
  }
  expect(type.pair ? "]" : "}");
}

void JsonLineReader::read_list(const Type& type, void* value) {
  void* elements = type.list.resize(value, 0);  // Of what it holds by default.
  expect("[");
  std::size_t count = 0;
  while (!error_ && !accept("]")) {
    if (count > 0) {
      expect(",");
    }
    if (count == type.list.fixed && type.list.fixed > 0) {
      return fail("]");
    }
    ++count;
    elements = type.list.resize(value, count);
    read(*type.element, at_offset(elements, (count - 1) * type.element->bytes));
  }
}

void JsonLineReader::read_variant(const Type& type, void* value) {
  expect("{\"");
  const std::string_view name = rest_.substr(0, std::min(rest_.find('"'), rest_.size()));
  if (error_) {
    return;
  }
  const auto found = std::find_if(type.alternatives.begin(),
                                  type.alternatives.end(),
                                  [name](const Type* one) { return one->name == name; });
  if (found == type.alternatives.end()) {
    return fail("the name of an event or a command");
  }
  rest_.remove_prefix(name.size());
  expect("\":");
  read_struct(**found,
              type.choose(value, static_cast<std::size_t>(found - type.alternatives.begin())));
  expect("}");
}

}  // namespace heddle
