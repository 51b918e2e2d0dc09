#pragma once

#include <cstdint>
#include <string>

namespace heddle::api {

/// A time as RFC 3339 has it, in UTC: "2026-01-02T03:04:05Z", with nine digits of a second where it
/// is not whole.
/// @param nanoseconds  Since 1970.
[[nodiscard]] std::string utc_time(std::int64_t nanoseconds);

}  // namespace heddle::api
