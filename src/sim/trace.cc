#include "sim/trace.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "spec/json_view.h"

namespace heddle::sim {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kSecondsMost = std::int64_t{100} * 366 * 86400;
constexpr std::int64_t kTokensMost = 100'000'000;

constexpr std::array<std::string_view, 4> kArrivalNames{
    "arrival_s", "timestamp", "arrival", "time"};
constexpr std::array<std::string_view, 4> kInputNames{
    "input_tokens", "contexttokens", "request tokens", "input_length"};
constexpr std::array<std::string_view, 4> kOutputNames{
    "output_tokens", "generatedtokens", "response tokens", "output_length"};
constexpr std::array<std::string_view, 2> kModelNames{"model", "model_name"};

Error bad(const std::string& why) {
  return {.code = Code::kCorrupt, .message = why};
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 40;
  return "\"" + std::string(text.substr(0, kMost)) + (text.size() > kMost ? "...\"" : "\"");
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return made;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\"");
  const std::size_t last = text.find_last_not_of(" \t\r\"");
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, last - first + 1);
}

void split(std::string_view line, std::vector<std::string_view>& cells) {
  cells.clear();
  for (std::size_t begin = 0;;) {
    const std::size_t comma = line.find(',', begin);
    cells.push_back(trim(line.substr(begin, comma - begin)));
    if (comma == std::string_view::npos) {
      return;
    }
    begin = comma + 1;
  }
}

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

Result<std::int64_t> token_count(std::string_view text, const char* what) {
  const std::optional<std::int64_t> value = whole(text);
  if (!value || *value < 0 || *value > kTokensMost) {
    return bad(std::string(what) + " " + quoted(text) + " is not a number of tokens");
  }
  return *value;
}

/// Days from 1970-01-01 of a date in the Gregorian calendar (Hinnant's algorithm).
std::int64_t days_from_civil(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = year / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

/// 64 bits of nanoseconds from 1970 on end in 2262.
constexpr std::int64_t kYearMost = 2261;

template <std::size_t Count>
std::optional<std::size_t> column(const std::vector<std::string_view>& cells,
                                  const std::array<std::string_view, Count>& names) {
  for (const std::string_view name : names) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (lower(cells[i]) == name) {
        return i;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> decimal_nanoseconds(std::string_view text) {
  const std::size_t point = text.find('.');
  const std::optional<std::int64_t> seconds = whole(text.substr(0, point));
  if (!seconds || *seconds < 0 || *seconds > kSecondsMost || text.front() == '-') {
    return std::nullopt;
  }
  std::int64_t nanoseconds = *seconds * kSecond;
  if (point != std::string_view::npos) {
    std::int64_t unit = kSecond / 10;
    for (const char digit : text.substr(point + 1)) {
      if (digit < '0' || digit > '9') {
        return std::nullopt;
      }
      nanoseconds += unit * (digit - '0');
      unit /= 10;
    }
  }
  return nanoseconds;
}

std::optional<std::int64_t> date_nanoseconds(std::string_view text) {
  constexpr std::size_t kDateLength = 19;
  if (text.size() < kDateLength || text[4] != '-' || text[7] != '-' || text[13] != ':' ||
      text[16] != ':' || (text[10] != ' ' && text[10] != 'T')) {
    return std::nullopt;
  }
  const std::size_t zone = text.find_first_of("+Z", kDateLength);
  const auto year = whole(text.substr(0, 4));
  const auto month = whole(text.substr(5, 2));
  const auto day = whole(text.substr(8, 2));
  const auto hour = whole(text.substr(11, 2));
  const auto minute = whole(text.substr(14, 2));
  const auto second = decimal_nanoseconds(text.substr(17, zone - 17));
  if (!year || !month || !day || !hour || !minute || !second || *year < 1970 || *year > kYearMost ||
      *month < 1 || *month > 12 || *day < 1 || *day > 31 || *hour > 23 || *minute > 59 ||
      *second > 61 * kSecond) {
    return std::nullopt;
  }
  return (days_from_civil(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60) * kSecond +
         *second;
}

Result<std::optional<ParsedRow>> TraceParser::parse(std::string_view line) {
  if (trim(line).empty()) {
    return std::optional<ParsedRow>{};
  }
  switch (form_) {
    case Form::kUnknown:
      if (trim(line).front() != '{') {
        return parse_header(line);
      }
      form_ = Form::kJsonLines;
      return parse_json(line);
    case Form::kCsv:
      return parse_csv(line);
    case Form::kJsonLines:
      return parse_json(line);
  }
  return bad("unreachable");
}

Result<std::optional<ParsedRow>> TraceParser::parse_header(std::string_view line) {
  split(line, cells_);
  const auto arrival = column(cells_, kArrivalNames);
  const auto input = column(cells_, kInputNames);
  const auto output = column(cells_, kOutputNames);
  if (!arrival || !input || !output) {
    return bad(
        "the first line is no header that is known: want columns such as "
        "arrival_s,model,input_tokens,output_tokens");
  }
  columns_ = {.arrival = *arrival,
              .input = *input,
              .output = *output,
              .model = column(cells_, kModelNames)};
  form_ = Form::kCsv;
  return std::optional<ParsedRow>{};
}

Result<Instant> TraceParser::parse_arrival(std::string_view text) {
  if (const auto seconds = decimal_nanoseconds(text)) {
    return Instant(Duration(*seconds));
  }
  const std::optional<std::int64_t> date = date_nanoseconds(text);
  if (!date) {
    return bad("arrival " + quoted(text) + " is neither seconds nor a date");
  }
  first_date_ = first_date_ ? first_date_ : date;
  return Instant(Duration(*date - *first_date_));
}

Result<std::optional<ParsedRow>> TraceParser::in_order(ParsedRow row) {
  if (row.arrival < latest_) {
    return bad("it arrives before the row above; want rows in order of arrival");
  }
  latest_ = row.arrival;
  return std::optional(row);
}

Result<std::optional<ParsedRow>> TraceParser::parse_csv(std::string_view line) {
  split(line, cells_);
  const std::size_t last =
      std::max({columns_.arrival, columns_.input, columns_.output, columns_.model.value_or(0)});
  if (cells_.size() <= last) {
    return bad("it has " + std::to_string(cells_.size()) + " columns; want at least " +
               std::to_string(last + 1));
  }
  const Result<Instant> arrival = parse_arrival(cells_[columns_.arrival]);
  if (!arrival) {
    return arrival.error();
  }
  const Result<std::int64_t> input = token_count(cells_[columns_.input], "input");
  if (!input) {
    return input.error();
  }
  const Result<std::int64_t> output = token_count(cells_[columns_.output], "output");
  if (!output) {
    return output.error();
  }
  return in_order({.arrival = *arrival,
                   .model = columns_.model ? cells_[*columns_.model] : std::string_view{},
                   .input_tokens = *input,
                   .output_tokens = *output});
}

Result<std::optional<ParsedRow>> TraceParser::parse_json(std::string_view line) {
  const Result<spec::Json> json = spec::parse_json(line, "the row");
  if (!json) {
    return bad(json.error().message);
  }
  const auto number = [&](const char* name) -> std::optional<std::int64_t> {
    const auto* value = spec::value_at<std::int64_t>(*json, {name});
    return value != nullptr && *value >= 0 ? std::optional(*value) : std::nullopt;
  };
  const auto arrival = number("timestamp");
  const auto input = number("input_length");
  const auto output = number("output_length");
  if (!arrival || !input || !output || *input > kTokensMost || *output > kTokensMost ||
      *arrival / 1000 > kSecondsMost) {
    return bad("want whole numbers \"timestamp\" [ms], \"input_length\" and \"output_length\"");
  }
  const auto* label = spec::value_at<std::string>(*json, {"model"});
  model_ = label == nullptr ? std::string{} : *label;
  return in_order({.arrival = Instant(Duration(*arrival * 1'000'000)),
                   .model = model_,
                   .input_tokens = *input,
                   .output_tokens = *output});
}

}  // namespace heddle::sim
