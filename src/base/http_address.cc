#include "base/http_address.h"

#include <algorithm>
#include <charconv>

namespace heddle {

namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr std::uint16_t kHttpsPort = 443;

Error invalid(std::string_view text, const char* why) {
  return {.code = Code::kInvalidArgument, .message = "\"" + std::string(text) + "\" " + why};
}

/// Takes the scheme off `text`, and gives the port that it has.
std::uint16_t take_scheme(std::string_view& text, const HttpDefaults& defaults) {
  if (text.starts_with(kHttps)) {
    text.remove_prefix(kHttps.size());
    return kHttpsPort;
  }
  if (text.starts_with(kHttp)) {
    text.remove_prefix(kHttp.size());
    return defaults.http_port;
  }
  return defaults.port;
}

/// Takes ":80" off the end of `authority`; false where what follows the colon is no port.
bool take_port(std::string_view& authority, std::uint16_t& port) {
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) {
    return true;
  }
  const std::string_view digits = authority.substr(colon + 1);
  authority = authority.substr(0, colon);
  const auto [at, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return failure == std::errc() && at == digits.data() + digits.size() && port != 0;
}

}  // namespace

std::string HttpAddress::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string HttpAddress::url() const {
  return std::string(tls ? kHttps : kHttp) + authority() + base_path;
}

Result<HttpAddress> parse_http_address(std::string_view text, const HttpDefaults& defaults) {
  std::string_view rest = text;
  HttpAddress address{.tls = text.starts_with(kHttps)};
  address.port = take_scheme(rest, defaults);
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos) {
    return invalid(text, "has more than a host, a port and a path");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) {
    path.remove_suffix(1);
  }
  address.base_path = path.empty() ? defaults.base_path : path;
  std::string_view authority = rest.substr(0, slash);
  if (!take_port(authority, address.port)) {
    return invalid(text, "names no port from 1 to 65535");
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  } else if (authority.find(':') != std::string_view::npos) {
    return invalid(text, "has an IPv6 address without brackets");
  }
  address.host = authority.empty() ? defaults.host : authority;
  if (address.host.empty() || address.host.find_first_of("[]") != std::string::npos) {
    return invalid(text, "names no host");
  }
  return address;
}

}  // namespace heddle
