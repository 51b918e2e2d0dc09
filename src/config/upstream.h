#pragma once

#include <string_view>

#include "base/http_address.h"
#include "base/result.h"

namespace heddle::config {

/// Parses "http://host[:port][/path]"; without a port it is 80. kInvalidArgument for anything else.
Result<HttpAddress> parse_upstream(std::string_view text);

/// Whether it leads to this machine: loopback or any address, by number or as localhost.
[[nodiscard]] bool is_local(const HttpAddress& url);

}  // namespace heddle::config
