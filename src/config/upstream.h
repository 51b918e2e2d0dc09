#pragma once

#include <string_view>

#include "base/result.h"
#include "config/engine_config.h"

namespace heddle::config {

/// Parses "http://host[:port][/path]"; without a port it is 80. kInvalidArgument for anything else.
Result<UpstreamUrl> parse_upstream(std::string_view text);

/// Whether it leads to this machine: loopback or any address, by number or as localhost.
[[nodiscard]] bool is_local(const UpstreamUrl& url);

}  // namespace heddle::config
