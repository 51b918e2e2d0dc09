#include "spec/json_writer.h"

#include <cmath>

#include <fmt/format.h>

namespace heddle::spec {
namespace {

/// Length of the well-formed UTF-8 sequence that `text` begins with, 0 if it is not one (Unicode
/// 15, table 3-7).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return continues(1) ? 2 : 0;
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && byte(1) < 0x90;
    const bool beyond = lead == 0xF4 && byte(1) > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_escaped(name);
  text_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_escaped(text);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  return std::isfinite(value) ? raw(fmt::format("{}", value)) : null();
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view value) {
  separate();
  text_ += value;
  return *this;
}

void JsonWriter::separate() {
  if (!first_) {
    text_ += ',';
  }
  first_ = false;
}

void JsonWriter::append_escaped(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = sequence_length(text);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c == '\t') {
      text_ += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if (length == 0) {
      text_ += "\xEF\xBF\xBD";  // U+FFFD.
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

}  // namespace heddle::spec
