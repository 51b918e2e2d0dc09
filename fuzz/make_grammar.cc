#include "make_grammar.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle::fuzz {

namespace {

using namespace std::string_view_literals;

constexpr std::size_t kDefinitionsMax = 2200;

/// Which definition the one with this number refers to.
std::size_t next_of(std::size_t number, std::size_t count, Choices& choices) {
  switch (choices.below(5)) {
    case 0:
      return choices.below(std::max<std::size_t>(count, 1));  // Anywhere, in circles, too.
    case 1:
      return std::min(number + 1 + choices.below(4), count);
    default:
      return number + 1;  // A chain.
  }
}

std::string regex(Choices& choices, int depth = 0) {
  constexpr std::array kAtoms = {"a"sv,
                                 "[a-c]"sv,
                                 "."sv,
                                 "\\d"sv,
                                 "\\w"sv,
                                 "é"sv,
                                 "[^b]"sv,
                                 "(?i:x)"sv,
                                 "\\p{L}"sv,
                                 "\\b"sv,
                                 "^"sv,
                                 "$"sv,
                                 ""sv};
  constexpr std::array kRepeats = {
      ""sv, "*"sv, "+"sv, "?"sv, "{2,5}"sv, "{0,900}"sv, "{3}"sv, "*?"sv};
  std::string text;
  for (std::size_t left = 1 + choices.below(4); left > 0; --left) {
    const bool nested = depth < 110 && choices.chance(3);
    text += nested ? "(" + regex(choices, depth + 1) + ")" : std::string(choices.of(kAtoms));
    text += choices.of(kRepeats);
    text += choices.chance(6) ? "|" : "";
  }
  return text;
}

/// JSON of a string with what a regular expression needs escaped.
std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    json += c == '\\' || c == '"' ? std::string("\\") + c : std::string(1, c);
  }
  return json + "\"";
}

std::string reference(std::size_t number) {
  return R"({"$ref":"#/$defs/a)" + std::to_string(number) + "\"}";
}

std::string leaf(Choices& choices) {
  constexpr std::array kNumbers = {"0"sv,
                                   "1"sv,
                                   "-1"sv,
                                   "0.5"sv,
                                   "1e300"sv,
                                   "-9223372036854775808"sv,
                                   "12345678901234567890"sv,
                                   "3"sv};
  switch (choices.below(8)) {
    case 0:
      return R"({"type":"string","pattern":)" + quoted(regex(choices)) + "}";
    case 1:
      return R"({"type":"string","minLength":)" + std::to_string(choices.below(300)) +
             R"(,"maxLength":)" + std::to_string(choices.below(70000)) + "}";
    case 2:
      return R"({"type":"integer","minimum":)" + std::string(choices.of(kNumbers)) +
             R"(,"maximum":)" + std::string(choices.of(kNumbers)) + "}";
    case 3:
      return R"({"type":"number","multipleOf":)" + std::string(choices.of(kNumbers)) + "}";
    case 4:
      return R"({"enum":[1,"a",null,{"b":[)" + quoted(choices.text()) + "]}]}";
    case 5:
      return R"({"type":"string","format":"date-time"})";
    case 6:
      return choices.chance(2) ? "true" : "{}";
    default:
      return R"({"type":["string","null"],"const":)" + quoted(choices.text()) + "}";
  }
}

std::string object(std::size_t count, const std::string& first, Choices& choices) {
  std::string json = R"({"type":"object","properties":{"x":)" + first;
  for (std::size_t i = 0; i < count; ++i) {
    json += ",\"p" + std::to_string(i) + "\":" + (choices.chance(3) ? first : leaf(choices));
  }
  json += "}";
  json += choices.chance(3) ? R"(,"required":["x","zz"])" : "";
  json += choices.chance(3) ? R"(,"additionalProperties":false)" : "";
  json += choices.chance(4) ? R"(,"minProperties":1)" : "";
  json += choices.chance(4) ? R"(,"patternProperties":{"^q":)" + leaf(choices) + "}" : "";
  return json + "}";
}

std::string definition(std::size_t number, std::size_t count, Choices& choices) {
  const std::string to = reference(next_of(number, count, choices));
  const std::string also = reference(next_of(number, count, choices));
  switch (choices.below(9)) {
    case 0:
      return R"({"type":"array","items":)" + to + R"(,"maxItems":)" +
             std::to_string(choices.below(40)) + "}";
    case 1:
      return R"({"anyOf":[)" + to + "," + also + "," + leaf(choices) + "]}";
    case 2:
      return R"({"allOf":[)" + to + "," + also + "]}";
    case 3:
      return R"({"oneOf":[)" + leaf(choices) + "," + to + "]}";
    case 4:  // A reference with something beside it is copied.
      return object(choices.count(20), R"({"type":"object",)" + to.substr(1), choices);
    case 5:
      return R"({"type":"array","prefixItems":[)" + to + "," + also + R"(],"items":)" +
             leaf(choices) + "}";
    case 6:
      return to;
    case 7:
      return leaf(choices);
    default:
      return object(choices.count(400), to, choices);
  }
}

std::string schema(Choices& choices) {
  const std::size_t count = choices.count(kDefinitionsMax);
  std::string json = R"({"$ref":"#/$defs/a0")";
  json += choices.chance(5) ? R"(,"x-guidance":{"whitespace_flexible":true})" : "";
  json += R"(,"$defs":{)";
  for (std::size_t i = 0; i < count; ++i) {
    json += "\"a" + std::to_string(i) + "\":" + definition(i, count, choices) + ",";
  }
  return json + "\"a" + std::to_string(count) + "\":" + leaf(choices) + "}}";
}

std::string lark_body(
    char kind, std::size_t number, std::size_t count, Choices& choices, int depth) {
  constexpr std::array kAtoms = {"\"a\""sv,
                                 "\"bc\"i"sv,
                                 "/[a-z]+/"sv,
                                 "\"a\"..\"f\""sv,
                                 "/x{0,40}/s"sv,
                                 "\"\""sv,
                                 "<[5-9]>"sv,
                                 "%json {\"type\": \"object\"}"sv,
                                 "%regex {\"substring_chars\": \"abcabc\"}"sv,
                                 "<tool>"sv};
  constexpr std::array kRepeats = {""sv, ""sv, ""sv, "?"sv, "*"sv, "+"sv, "{2,9}"sv, "~3..5"sv};
  std::string text;
  for (std::size_t left = 1 + choices.below(3); left > 0; --left) {
    switch (choices.below(4)) {
      case 0:
        text += choices.of(kAtoms);
        break;
      case 1:
        text +=
            depth < 32 ? "(" + lark_body(kind, number, count, choices, depth + 1) + ")" : "\"d\"";
        break;
      default:
        text += kind + std::to_string(next_of(number, count, choices));
        break;
    }
    text += choices.of(kRepeats);
    text += choices.chance(5) ? " | " : choices.chance(12) ? " & " : " ";
  }
  return text;
}

std::string lark(Choices& choices) {
  const std::size_t rules = choices.count(kDefinitionsMax);
  const std::size_t terminals = choices.count(kDefinitionsMax);
  std::string text = "start: a0 A0\n";
  text += choices.chance(4) ? "%ignore / +/\n" : "";
  for (std::size_t i = 0; i < rules; ++i) {
    const char kind = choices.chance(6) ? 'A' : 'a';
    text += "a" + std::to_string(i) + (choices.chance(9) ? "[capture]: " : ": ") +
            lark_body(kind, i, kind == 'A' ? terminals : rules, choices, 0) + "\n";
  }
  text += "a" + std::to_string(rules) + ": \"end\"\n";
  for (std::size_t i = 0; i < terminals; ++i) {
    text += "A" + std::to_string(i) + ": " + lark_body('A', i, terminals, choices, 0) + "\n";
  }
  return text + "A" + std::to_string(terminals) + ": \"END\"\n";
}

}  // namespace

std::string make_grammar(spec::GrammarKind kind, Choices& choices) {
  switch (kind) {
    case spec::GrammarKind::kJsonSchema:
      return schema(choices);
    case spec::GrammarKind::kRegex:
      return regex(choices);
    default:
      return lark(choices);
  }
}

}  // namespace heddle::fuzz
