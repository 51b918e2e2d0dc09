#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace heddle {

/// Reads a size as people write it: "64MiB", "2 GB", "1.5GiB", "512B", or a plain number of bytes.
/// Prefixes are k/K, M, G and T; with "i" they are powers of 1024, without it powers of 1000. A
/// fraction is allowed as long as the result is a whole number of bytes. kInvalidArgument, with
/// an example of what would be right, for anything else: a bare "64M", a sign, an overflow.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);

/// Reads bytes per second: a size followed by "/s", as "50MB/s", or bits, with a small b, as links
/// are sold: "25Gb/s". At least one byte.
[[nodiscard]] Result<std::uint64_t> parse_rate(std::string_view text);

/// Reads a span of time: "250us", "20ms", "1.5s", "10m", "2h"; "0" needs no unit. At most 10 years.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);

/// A size for people, in powers of 1024 with three significant digits: "17 B", "64.0 KiB",
/// "1.50 GiB".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// "50.0 MB/s": three significant digits, powers of 1000, as links and disks are sold.
[[nodiscard]] std::string format_rate(double bytes_per_second);

/// A span of time for people: "0 s", "850 ns", "1.25 ms", "12.0 s", "3m 20s", "2h 05m".
[[nodiscard]] std::string format_duration(Duration duration);

}  // namespace heddle
