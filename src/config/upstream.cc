#include "config/upstream.h"

#include <charconv>
#include <string>

namespace heddle::config {

namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::uint16_t kHttpPort = 80;

Error invalid(std::string_view text, const std::string& why) {
  return {.code = Code::kInvalidArgument,
          .message = "\"" + std::string(text) + "\" " + why +
                     "; want an address such as http://127.0.0.1:5800"};
}

}  // namespace

Result<UpstreamUrl> parse_upstream(std::string_view text) {
  if (text.starts_with("https://")) {
    return invalid(text, "is https, which is not spoken to engines");
  }
  if (!text.starts_with(kScheme)) {
    return invalid(text, "does not start with http://");
  }
  std::string_view rest = text.substr(kScheme.size());
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos) {
    return invalid(text, "has more than a host, a port and a path");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  UpstreamUrl url{.port = kHttpPort, .base_path = std::string(rest.substr(slash))};
  while (url.base_path.ends_with('/')) {
    url.base_path.pop_back();
  }
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || end != digits.data() + digits.size() || url.port == 0) {
      return invalid(text, "names no port from 1 to 65535");
    }
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  } else if (authority.find(':') != std::string_view::npos) {
    return invalid(text, "has an IPv6 address without brackets");
  }
  if (authority.empty()) {
    return invalid(text, "names no host");
  }
  url.host = std::string(authority);
  return url;
}

bool is_local(const UpstreamUrl& url) {
  return url.host == "localhost" || url.host == "0.0.0.0" || url.host == "::1" ||
         url.host == "::" || url.host.starts_with("127.");
}

}  // namespace heddle::config
