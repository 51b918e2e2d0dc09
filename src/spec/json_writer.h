#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::spec {

/// Writes one JSON document by appending to a string. Commas and escapes are its business; that
/// begin and end match, and that members of objects have keys, is the caller's.
///
///     JsonWriter json;
///     json.begin_object().key("name").string("adder").key("layers").integer(4).end_object();
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);
  /// Text in UTF-8; bytes that are not become U+FFFD, so that the document is always valid.
  JsonWriter& string(std::string_view text);
  template <std::integral T>
  JsonWriter& integer(T value) {
    return raw(std::to_string(value));
  }
  /// The shortest text that reads back as the same double; null where it is not finite.
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  /// A value that is JSON already.
  JsonWriter& json(std::string_view value) { return raw(value); }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view value);
  void separate();
  void append_escaped(std::string_view text);

  std::string text_{};
  bool first_ = true;  ///< Nothing stands before the next value in its array or object.
};

}  // namespace heddle::spec
