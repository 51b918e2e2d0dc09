#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::config {

/// A host as the header Host has it, read strictly.
struct WebHost {
  std::string name{};  ///< Lower case; without brackets, and without the dot that may end a name.
  std::optional<std::uint16_t> port{};
  bool numeric = false;  ///< An address, in its usual spelling.
  bool local = false;    ///< This machine's own: 127.0.0.0/8, ::1, localhost and what ends so.
};

/// Reads "name", "name:80", "127.0.0.1:80" or "[::1]:80". Nothing for anything else, such as what
/// has a user, a path, white space, two dots at its end, or a port beyond 65535.
[[nodiscard]] std::optional<WebHost> parse_web_host(std::string_view text);

/// The same of an address to listen on, where those of IPv6 have no brackets.
[[nodiscard]] std::optional<WebHost> parse_listen_host(std::string_view text);

/// An origin as browsers write it, in one spelling: "https://name:8443", in lower case, without the
/// port that its scheme has anyway; or "null". Nothing for what is none, such as what has a path.
[[nodiscard]] std::optional<std::string> parse_origin(std::string_view text);

/// Whether a page of `origin`, which parse_origin() has written, came from `host`. Its scheme is
/// http or https: a proxy before the server may speak the latter.
[[nodiscard]] bool is_same_origin(std::string_view origin, const WebHost& host);

}  // namespace heddle::config
