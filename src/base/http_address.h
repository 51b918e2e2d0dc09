#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle {

/// Where a server of HTTP is: heddle's own, an engine, or an API elsewhere.
struct HttpAddress {
  std::string host = "127.0.0.1";  ///< Name or numeric address; IPv6 without brackets.
  std::uint16_t port = 0;
  std::string base_path{};  ///< Before the paths of requests; empty or "/x", without a last slash.
  bool tls = false;

  /// "host:port", with brackets around an address of IPv6.
  [[nodiscard]] std::string authority() const;
  /// "https://host:port/base".
  [[nodiscard]] std::string url() const;
  friend bool operator==(const HttpAddress&, const HttpAddress&) = default;
};

/// What is meant where a text does not say it.
struct HttpDefaults {
  std::string_view host{};       ///< Empty: the text has to say it.
  std::uint16_t port = 80;       ///< Where it has no scheme either.
  std::uint16_t http_port = 80;  ///< Of http://; https:// has 443.
  std::string_view base_path{};
};

/// Reads "https://host:port/base", any part of which but the host may be absent. kInvalidArgument
/// for anything else; the message says what is wrong with the text, not what is wanted.
[[nodiscard]] Result<HttpAddress> parse_http_address(std::string_view text,
                                                     const HttpDefaults& defaults);

}  // namespace heddle
