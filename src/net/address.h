#pragma once

#include <cstdint>
#include <string>

namespace heddle::net {

/// Where a process listens for links.
struct Address {
  std::string host{};  ///< Name or numeric address; IPv6 without brackets.
  std::uint16_t port = 0;

  /// "host:port", with brackets around an address of IPv6.
  [[nodiscard]] std::string text() const {
    return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
           std::to_string(port);
  }
  friend bool operator==(const Address&, const Address&) = default;
};

}  // namespace heddle::net
