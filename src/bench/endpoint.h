#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::bench {

/// Where an API is.
struct Endpoint {
  bool tls = false;
  std::string host{};
  std::string port{};
  std::string path{};  ///< Of the API, without a slash at its end: "/v1".
  std::string api_key{};

  [[nodiscard]] std::string url() const;
};

/// Reads "https://host/v1", "http://host:port", "host:port", "host" or ":port"; what is missing is
/// http, 127.0.0.1, the scheme's port (8080 without a scheme) and /v1.
Result<Endpoint> parse_endpoint(std::string_view text, std::string api_key);

}  // namespace heddle::bench
