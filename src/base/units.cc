#include "base/units.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace heddle {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t scale;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::uint64_t kKibi = 1024;

constexpr std::array kByteUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"kB", kKilo},
    Unit{"KB", kKilo},
    Unit{"MB", kKilo* kKilo},
    Unit{"GB", kKilo* kKilo* kKilo},
    Unit{"TB", kKilo* kKilo* kKilo* kKilo},
    Unit{"KiB", kKibi},
    Unit{"MiB", kKibi* kKibi},
    Unit{"GiB", kKibi* kKibi* kKibi},
    Unit{"TiB", kKibi* kKibi* kKibi* kKibi},
};

constexpr std::uint64_t kSecond = 1'000'000'000;  // Nanoseconds.
constexpr std::uint64_t kYear = 365 * 24 * 3600 * kSecond;
constexpr std::array kTimeUnits = {
    Unit{"ns", 1},
    Unit{"us", 1000},
    Unit{"ms", 1'000'000},
    Unit{"s", kSecond},
    Unit{"m", 60 * kSecond},
    Unit{"h", 3600 * kSecond},
};

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// digits * scale / 10^decimals where that is a whole number that fits; exact, no floating point.
std::optional<std::uint64_t> scaled(std::string_view number, std::uint64_t scale) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t digits = 0;
  std::uint64_t divisor = 1;
  bool seen_point = false;
  for (const char c : number) {
    if (c == '.') {
      seen_point = true;
      continue;
    }
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (digits > (kMax - digit) / 10 || (seen_point && divisor > kMax / 10)) {
      return std::nullopt;
    }
    digits = digits * 10 + digit;
    divisor *= seen_point ? 10 : 1;
  }
  // Takes common factors out first, so that "1.500000000GiB" does not overflow on the way.
  while (divisor > 1 && digits % 10 == 0) {
    digits /= 10;
    divisor /= 10;
  }
  const auto product = static_cast<unsigned __int128>(digits) * scale;
  if (product % divisor != 0 || product / divisor > kMax) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(product / divisor);
}

/// A number (digits with at most one point between digits) and one of `units` behind it.
std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  std::size_t length = 0;
  int points = 0;
  while (length < text.size() && (is_digit(text[length]) || text[length] == '.')) {
    points += text[length] == '.' ? 1 : 0;
    ++length;
  }
  const std::string_view number = text.substr(0, length);
  if (number.empty() || points > 1 || number.front() == '.' || number.back() == '.') {
    return std::nullopt;
  }
  const std::string_view name = trim(text.substr(length));
  for (const Unit& unit : units) {
    if (unit.name == name) {
      return scaled(number, unit.scale);
    }
  }
  return std::nullopt;
}

/// "1.50", "64.0" or "512": three significant digits of a value in [1, 1024).
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  if (const auto bytes = parse_quantity(text, kByteUnits)) {
    return *bytes;
  }
  return Error{
      Code::kInvalidArgument,
      fmt::format("\"{}\" is not a size; write a number with B, KB, MB, GB, TB (powers of 1000) or "
                  "KiB, MiB, GiB, TiB (powers of 1024), such as 64MiB",
                  text)};
}

Result<std::uint64_t> parse_rate(std::string_view text) {
  const std::string_view trimmed = trim(text);
  if (trimmed.ends_with("/s")) {
    std::string size(trimmed.substr(0, trimmed.size() - 2));
    const bool in_bits = size.ends_with('b');
    if (in_bits) {
      size.back() = 'B';
    }
    const auto amount = parse_quantity(size, kByteUnits);
    const std::uint64_t bytes = amount.value_or(0) / (in_bits ? 8 : 1);
    if (bytes > 0) {
      return bytes;
    }
  }
  return Error{Code::kInvalidArgument,
               fmt::format("\"{}\" is not a rate; write a size above zero with /s, such as 50MB/s, "
                           "or bits, such as 25Gb/s",
                           text)};
}

Result<Duration> parse_duration(std::string_view text) {
  const auto ns =
      trim(text) == "0" ? std::optional<std::uint64_t>(0) : parse_quantity(text, kTimeUnits);
  if (ns && *ns <= 10 * kYear) {
    return Duration(static_cast<Duration::rep>(*ns));
  }
  return Error{Code::kInvalidArgument,
               fmt::format("\"{}\" is not a span of time of at most ten years; write a number with "
                           "ns, us, ms, s, m or h, such as 20ms",
                           text)};
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < kKibi) {
    return fmt::format("{} B", bytes);
  }
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / kKibi;
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= kKibi;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), kNames.at(unit));
}

std::string format_rate(double bytes_per_second) {
  constexpr std::array kNames = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
  double value = std::max(bytes_per_second, 0.0);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= kKilo;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), kNames.at(unit));
}

std::string format_duration(Duration duration) {
  const auto ns = duration.count();
  if (ns < 0) {
    return "-" + format_duration(Duration(-ns));
  }
  const double seconds = static_cast<double>(ns) / static_cast<double>(kSecond);
  if (ns == 0) {
    return "0 s";
  }
  if (ns < 1000) {
    return fmt::format("{} ns", ns);
  }
  if (seconds < 999.5e-6) {
    return three_digits(seconds * 1e6) + " us";
  }
  if (seconds < 0.9995) {
    return three_digits(seconds * 1e3) + " ms";
  }
  if (seconds < 119.5) {
    return three_digits(seconds) + " s";
  }
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 7200) {
    return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  }
  return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace heddle
