#pragma once

#include <string_view>

#include "base/http_address.h"
#include "base/result.h"

namespace heddle::bench {

/// Reads where an API is: "https://host/v1", "http://host:port", "host:port", "host" or ":port";
/// what is missing is http, 127.0.0.1, the scheme's port (8080 without a scheme) and /v1.
Result<HttpAddress> parse_endpoint(std::string_view text);

}  // namespace heddle::bench
