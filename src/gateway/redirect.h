#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/http_address.h"

namespace heddle::gateway {

/// What a client is to be told where an engine's answer says `Location: location`. An engine may
/// send a client to itself, whose paths heddle has below /upstream/MODEL/, and nowhere else: not to
/// other hosts, which the client did not mean to talk to, nor to heddle's own paths, to which it
/// would bring its key.
///
/// @param target  Path and query that the engine was asked for, below its base path.
/// @return The path and query for the client, or nothing where `location` is elsewhere: on another
///         host or port, with another scheme, outside of the engine's base path.
[[nodiscard]] std::optional<std::string> redirect_below(const HttpAddress& engine,
                                                        std::string_view model,
                                                        std::string_view target,
                                                        std::string_view location);

}  // namespace heddle::gateway
