#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

/// What RFC 9112 says of the heads of messages: where their bodies end, and what is no head. Where
/// it leaves a choice, what two programs might read differently is refused. Pure.
namespace heddle::gateway {

/// Why a message is not taken.
struct HttpFault {
  int status = 400;        ///< What a client is answered.
  std::string_view why{};  ///< Never changes.
};

/// What the fields of a head say of its message and its connection.
class HttpFraming {
 public:
  /// Hears of a field of the head, in order; `value` is without white space around it.
  void add(std::string_view name, std::string_view value);

  /// What is wrong with a request, or an answer, of this head. HTTP/1.1, or 1.0.
  [[nodiscard]] std::optional<HttpFault> fault_of_request(bool is_11) const;
  [[nodiscard]] std::optional<HttpFault> fault_of_answer(bool is_11) const;

  /// Meaningful where there is no fault: how the body ends.
  [[nodiscard]] bool chunked() const { return encodings_ > 0; }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  /// Whether the sender takes another message on this connection.
  [[nodiscard]] bool keep_alive(bool is_11) const { return !close_ && (is_11 || keep_alive_); }

 private:
  void add_length(std::string_view text);
  void add_options(std::string_view list);
  void refuse(int status, std::string_view why);

  std::optional<HttpFault> fault_{};  ///< The first of a field by itself.
  std::optional<std::uint64_t> length_{};
  int hosts_ = 0;
  int encodings_ = 0;
  bool close_ = false;
  bool keep_alive_ = false;
};

/// Whether `name` is `lower`, letters' case aside; `lower` has none but small ones.
[[nodiscard]] bool is_field(std::string_view name, std::string_view lower);
/// Whether this is a token (RFC 9110, 5.6.2), such as the name of a field.
[[nodiscard]] bool is_token(std::string_view text);
/// Whether all characters may stand in the value of a field.
[[nodiscard]] bool is_field_text(std::string_view text);
/// Whether this is a host, with or without a port (RFC 3986, 3.2), or nothing.
[[nodiscard]] bool is_host(std::string_view text);
/// Without blanks and tabs around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace heddle::gateway
