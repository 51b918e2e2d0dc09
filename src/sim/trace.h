#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace heddle::sim {

/// One request as a file has it.
struct ParsedRow {
  Instant arrival{};         ///< From the start of the file's window.
  std::string_view model{};  ///< As labelled; empty where the format has no models.
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// Reads traces line by line. The first line says what it is: a CSV header that names an arrival
/// time, input and output tokens and, optionally, a model in any of the spellings of heddle
/// (arrival_s,model,input_tokens,output_tokens), Azure (TIMESTAMP,ContextTokens,GeneratedTokens),
/// BurstGPT (Timestamp,Model,Request tokens,Response tokens,...) and ServeGen's generator
/// (timestamp,input_tokens,output_tokens); or, without a header, a JSON object per line as Mooncake
/// has it ({"timestamp": ms, "input_length": n, "output_length": n, ...}). Further columns and
/// members are passed over. Times are seconds or dates; dates count from the first row's.
class TraceParser {
 public:
  /// Takes the next line, without its end. nullopt: it holds no request (a header, or blank).
  /// kCorrupt, with the reason, for a line that should hold one and does not; reading may go on.
  Result<std::optional<ParsedRow>> parse(std::string_view line);

 private:
  enum class Form : std::uint8_t { kUnknown, kCsv, kJsonLines };
  struct Columns {
    std::size_t arrival = 0;
    std::size_t input = 0;
    std::size_t output = 0;
    std::optional<std::size_t> model{};
  };

  Result<std::optional<ParsedRow>> parse_header(std::string_view line);
  Result<std::optional<ParsedRow>> parse_csv(std::string_view line);
  Result<std::optional<ParsedRow>> parse_json(std::string_view line);
  Result<std::optional<ParsedRow>> in_order(ParsedRow row);
  Result<Instant> parse_arrival(std::string_view text);

  Form form_ = Form::kUnknown;
  Columns columns_{};
  std::vector<std::string_view> cells_{};
  std::string model_{};
  std::optional<std::int64_t> first_date_{};  ///< [ns]
  Instant latest_{};
};

/// Exactly the nanoseconds of a decimal number of seconds, digits beyond dropped; nullopt for
/// anything else, a sign, or more than 100 years.
[[nodiscard]] std::optional<std::int64_t> decimal_nanoseconds(std::string_view text);

/// Nanoseconds from 1970 to a date such as "2023-11-16 18:17:03.9799600", with an optional "+00:00"
/// or "Z" behind it; nullopt for anything else.
[[nodiscard]] std::optional<std::int64_t> date_nanoseconds(std::string_view text);

}  // namespace heddle::sim
