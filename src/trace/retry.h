#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/rng.h"
#include "base/time.h"
#include "http/client.h"

/// What becomes of spans after a collector's answer, by OTLP's rules.
namespace heddle::trace {

enum class Verdict : std::uint8_t {
  kTaken,
  kAgain,    ///< It may take them later: 429, 502, 503, 504, or it could not be reached.
  kRefused,  ///< It never will.
};
[[nodiscard]] Verdict judge(const Result<http::Reply>& reply);

/// Reads a header `Retry-After`: seconds, or a date of HTTP's, of which `now_s` [seconds since
/// 1970] is subtracted. Nothing where it is neither. Never negative.
[[nodiscard]] std::optional<Duration> parse_retry_after(std::string_view text, std::int64_t now_s);

/// The longest wait that a collector is granted.
inline constexpr Duration kLongestWait = std::chrono::minutes(5);

/// How long to wait after try number `tries`, from 1 on: what the collector asks for, else twice as
/// long each time, from half of `first` to all of it and so on, so that processes do not come back
/// at once.
[[nodiscard]] Duration wait_before_retry(int tries,
                                         Duration first,
                                         std::optional<Duration> asked,
                                         Rng& rng);

}  // namespace heddle::trace
