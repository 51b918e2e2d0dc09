#include "bench/endpoint.h"

#include <utility>

namespace heddle::bench {

std::string Endpoint::url() const {
  return (tls ? "https://" : "http://") + host + ":" + port + path;
}

Result<Endpoint> parse_endpoint(std::string_view text, std::string api_key) {
  const std::string whole(text);
  Endpoint endpoint{.host = "127.0.0.1", .port = "8080", .api_key = std::move(api_key)};
  if (text.starts_with("https://")) {
    endpoint.tls = true;
    endpoint.port = "443";
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    endpoint.port = "80";
    text.remove_prefix(7);
  }
  const std::size_t slash = text.find('/');
  std::string_view path = slash == std::string_view::npos ? "" : text.substr(slash);
  while (path.ends_with('/')) {
    path.remove_suffix(1);
  }
  endpoint.path = path.empty() ? "/v1" : std::string(path);
  const std::string_view place = text.substr(0, slash);
  const std::size_t colon = place.rfind(':');
  if (const std::string_view host = place.substr(0, colon); !host.empty()) {
    endpoint.host = host;
  }
  if (colon != std::string_view::npos) {
    endpoint.port = place.substr(colon + 1);
  }
  const bool number =
      !endpoint.port.empty() && endpoint.port.find_first_not_of("0123456789") == std::string::npos;
  const bool odd = endpoint.host.find_first_of(":@?# ") != std::string::npos ||
                   endpoint.path.find_first_of("?# \r\n") != std::string::npos;
  if (!number || odd) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + whole + "\" is no address of an API; want http://host:port/v1"};
  }
  return endpoint;
}

}  // namespace heddle::bench
