#include "api/utc_time.h"

#include <ctime>

#include <fmt/format.h>

namespace heddle::api {

std::string utc_time(std::int64_t nanoseconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t rest = ((nanoseconds % kSecond) + kSecond) % kSecond;
  const std::time_t seconds = (nanoseconds - rest) / kSecond;
  std::tm parts{};
  (void)::gmtime_r(&seconds, &parts);
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
                                 parts.tm_year + 1900,
                                 parts.tm_mon + 1,
                                 parts.tm_mday,
                                 parts.tm_hour,
                                 parts.tm_min,
                                 parts.tm_sec);
  return text + (rest == 0 ? "" : fmt::format(".{:09}", rest)) + "Z";
}

}  // namespace heddle::api
