#include "trace/retry.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <string>

namespace heddle::trace {

namespace {

constexpr Duration kLongestBackoff = std::chrono::seconds(30);
constexpr std::array kLater{429, 502, 503, 504};

}  // namespace

Verdict judge(const Result<http::Reply>& reply) {
  if (!reply) {
    const Code code = reply.error().code;
    return code == Code::kUnavailable || code == Code::kDeadlineExceeded ? Verdict::kAgain
                                                                         : Verdict::kRefused;
  }
  if (reply->status / 100 == 2) {
    return Verdict::kTaken;
  }
  return std::ranges::find(kLater, reply->status) != kLater.end() ? Verdict::kAgain
                                                                  : Verdict::kRefused;
}

std::optional<Duration> parse_retry_after(std::string_view text, std::int64_t now_s) {
  std::int64_t seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size()) {
    std::tm date{};
    const std::string ended(text);
    const char* const rest = strptime(ended.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
    if (rest == nullptr || *rest != '\0') {
      return std::nullopt;
    }
    seconds = timegm(&date) - now_s;
  }
  const std::int64_t most = std::chrono::duration_cast<std::chrono::seconds>(kLongestWait).count();
  return std::chrono::seconds(std::clamp<std::int64_t>(seconds, 0, most));
}

Duration wait_before_retry(int tries, Duration first, std::optional<Duration> asked, Rng& rng) {
  if (asked) {
    return *asked;
  }
  Duration longest = first;
  for (int i = 1; i < tries && longest < kLongestBackoff; ++i) {
    longest *= 2;
  }
  const Duration half = std::min(longest, kLongestBackoff) / 2;
  return half + Duration(static_cast<Duration::rep>(
                    rng.below(static_cast<std::uint64_t>(half.count()) + 1)));
}

}  // namespace heddle::trace
