#include "gateway/http_date.h"

#include <fmt/format.h>

namespace heddle::gateway {

std::string_view HttpDate::at(std::time_t now) {
  if (now != written_) {
    constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    constexpr std::array kMonths{
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm utc{};
    (void)gmtime_r(&now, &utc);
    const auto written = fmt::format_to_n(text_.data(),
                                          text_.size(),
                                          "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
                                          kDays[static_cast<std::size_t>(utc.tm_wday)],
                                          utc.tm_mday,
                                          kMonths[static_cast<std::size_t>(utc.tm_mon)],
                                          utc.tm_year + 1900,
                                          utc.tm_hour,
                                          utc.tm_min,
                                          utc.tm_sec);
    size_ = static_cast<std::size_t>(written.out - text_.data());
    written_ = now;
  }
  return {text_.data(), size_};
}

}  // namespace heddle::gateway
