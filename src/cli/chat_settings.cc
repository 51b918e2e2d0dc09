#include "cli/chat_settings.h"

#include <charconv>

#include <fmt/format.h>

namespace heddle::cli {

namespace {

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
  }
  while (!text.empty() && text.back() == ' ') {
    text.remove_suffix(1);
  }
  return text;
}

template <class Number>
Result<void> read_number(std::string_view name,
                         std::string_view text,
                         Number least,
                         Number most,
                         std::optional<Number>& number) {
  if (text.empty()) {
    number.reset();
    return {};
  }
  Number value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return Error{.code = Code::kInvalidArgument,
                 .message = fmt::format(
                     "{}: is \"{}\"; want a number from {} to {}", name, text, least, most)};
  }
  number = value;
  return {};
}

template <class Number>
std::string shown_number(const std::optional<Number>& number) {
  return number ? fmt::format("{}", *number) : "the model's own";
}

}  // namespace

Result<void> ChatSettings::set(std::string_view text) {
  text = without_blanks(text);
  const std::string_view name = text.substr(0, text.find(' '));
  const std::string_view value = without_blanks(text.substr(name.size()));
  if (name == "system") {
    system = value;
    return {};
  }
  if (name == "temperature") {
    return read_number(name, value, 0.0, 100.0, temperature);
  }
  if (name == "top_p") {
    return read_number(name, value, 0.0, 1.0, top_p);
  }
  if (name == "max_tokens") {
    return read_number(name, value, std::int64_t{1}, std::int64_t{1} << 30U, max_tokens);
  }
  if (name == "seed") {
    return read_number(name, value, INT64_MIN, INT64_MAX, seed);
  }
  return Error{.code = Code::kInvalidArgument,
               .message = "there is no setting \"" + std::string(name) +
                          "\"; want system, temperature, top_p, max_tokens or seed"};
}

std::string ChatSettings::shown() const {
  return fmt::format(
      "system       {}\ntemperature  {}\ntop_p        {}\nmax_tokens   {}\nseed         {}\n",
      system.empty() ? "none" : system,
      shown_number(temperature),
      shown_number(top_p),
      shown_number(max_tokens),
      seed ? fmt::format("{}", *seed) : "drawn");
}

std::string ChatSettings::members() const {
  std::string text;
  const auto add = [&text](const char* name, const auto& number) {
    if (number) {
      text += fmt::format(",\"{}\":{}", name, *number);
    }
  };
  add("temperature", temperature);
  add("top_p", top_p);
  add("max_tokens", max_tokens);
  add("seed", seed);
  return text;
}

std::string joined_prompt(const std::string& prompt, std::string piped) {
  while (!piped.empty() && (piped.back() == '\n' || piped.back() == '\r')) {
    piped.pop_back();
  }
  return piped.empty() ? prompt : prompt + "\n\n" + piped;
}

}  // namespace heddle::cli
