#include "text/tool_calls.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::text {
namespace {

using Calls = std::vector<ToolCall>;

struct Outcome {
  std::string text{};
  Calls calls{};
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << '"' << outcome.text << '"';
  for (const ToolCall& call : outcome.calls) {
    *out << " " << call.name << call.arguments;
  }
}

struct Parse {
  ToolCallParser parser;
  Outcome outcome{};

  void take(ToolCallParser::Found found) {
    outcome.text += found.text;
    outcome.calls.insert(outcome.calls.end(), found.calls.begin(), found.calls.end());
  }
};

/// Parses a text that comes whole, by the character, in every way to cut it in two, and cut at
/// random.
void expect(ToolFormat format, const std::string& answer, const Outcome& expected) {
  const auto parse = [&](const std::vector<std::size_t>& cuts) {
    Parse parse{.parser = ToolCallParser(format)};
    std::size_t begin = 0;
    for (const std::size_t cut : cuts) {
      parse.take(parse.parser.push(std::string_view(answer).substr(begin, cut - begin)));
      begin = cut;
    }
    parse.take(parse.parser.push(std::string_view(answer).substr(begin)));
    parse.take(parse.parser.finish());
    return parse.outcome;
  };
  ASSERT_EQ(parse({}), expected) << answer;
  std::vector<std::size_t> every;
  for (std::size_t cut = 1; cut < answer.size(); ++cut) {
    ASSERT_EQ(parse({cut}), expected) << answer << " cut at " << cut;
    every.push_back(cut);
  }
  ASSERT_EQ(parse(every), expected) << answer;
  Rng rng(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::size_t> cuts;
    for (const std::size_t cut : every) {
      if (rng.below(4) == 0) {
        cuts.push_back(cut);
      }
    }
    ASSERT_EQ(parse(cuts), expected) << answer << ", draw " << i;
  }
}

TEST(ToolCalls, Hermes) {
  const auto hermes = [](const std::string& answer, const Outcome& expected) {
    expect(ToolFormat::kHermes, answer, expected);
  };
  const std::string one = R"(<tool_call>
{"name": "sum", "arguments": {"a": 1, "b": [2, "}</x>"]}}
</tool_call>)";
  const ToolCall sum{"sum", R"({"a":1,"b":[2,"}</x>"]})"};
  hermes(one, {"", {sum}});
  hermes("Let me see.\n" + one + "\n" + one + "\n", {"Let me see.", {sum, sum}});
  hermes("a " + one + " b", {"a b", {sum}});
  hermes(R"(<tool_call>{"name": "now"})", {"", {{"now", "{}"}}});
  hermes(R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)",
         {"", {{"f", R"({"x":1})"}}});
}

TEST(ToolCalls, WhatIsNoCallComesBackAsTheTextItWas) {
  for (const std::string text : {"plain",
                                 "",
                                 " \n",
                                 "a <b> <tool_cal <<tool_call",
                                 "<tool_call>",
                                 "<tool_call>{\"name\": \"f\", \"arguments\": {",
                                 "<tool_call>{\"name\": 5}</tool_call>",
                                 "x\n<tool_call>[1]</tool_call> y",
                                 "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>"}) {
    expect(ToolFormat::kHermes, text, {text, {}});
  }
  for (const std::string text : {"plain",
                                 "{\"a\": 1} {\"name\": \"f\"}",
                                 "{\"name\": \"f\", \"parameters\": {",
                                 "<|python_tag|>print(1)",
                                 "<|pyt",
                                 "  [1, 2]",
                                 "a {\"name\": \"f\"}"}) {
    expect(ToolFormat::kLlama3, text, {text, {}});
  }
  for (const std::string text : {"plain [TOOL_CAL [",
                                 "[TOOL_CALLS]",
                                 "[TOOL_CALLS][{\"name\": 1}]",
                                 "[TOOL_CALLS]f[ARGS]",
                                 "[TOOL_CALLS]f{broken}",
                                 "[TOOL_CALLS][{\"name\": \"f\"}"}) {
    expect(ToolFormat::kMistral, text, {text, {}});
  }
  expect(ToolFormat::kNone, "<tool_call>{\"name\": \"f\"}", {"<tool_call>{\"name\": \"f\"}", {}});
  const std::string deep =
      "<tool_call>" + std::string(500, '[') + std::string(500, ']') + "</tool_call>";
  expect(ToolFormat::kHermes, deep, {deep, {}});
}

TEST(ToolCalls, Llama3) {
  const ToolCall f{"f", R"({"x":"{"})"};
  const std::string one = R"({"name": "f", "parameters": {"x": "{"}})";
  expect(ToolFormat::kLlama3, one, {"", {f}});
  expect(ToolFormat::kLlama3, " <|python_tag|>" + one, {"", {f}});
  expect(ToolFormat::kLlama3, one + "; " + one + "\n", {"", {f, f}});
  expect(ToolFormat::kLlama3, one + " done", {" done", {f}});
}

TEST(ToolCalls, Mistral) {
  const ToolCall f{"f", R"({"x":[1]})"};
  const std::string item = R"({"name": "f", "arguments": {"x": [1]}})";
  expect(ToolFormat::kMistral, "[TOOL_CALLS] [" + item + "]", {"", {f}});
  expect(ToolFormat::kMistral, "Hm. [TOOL_CALLS][" + item + ", " + item + "]", {"Hm.", {f, f}});
  expect(ToolFormat::kMistral,
         R"([TOOL_CALLS]f[ARGS]{"x": [1]}[TOOL_CALLS]g{"y": 2})",
         {"", {{"f", R"({"x":[1]})"}, {"g", R"({"y":2})"}}});
}

TEST(ToolCalls, Generic) {
  const ToolCall f{"f", R"({"x":"]"})"};
  const std::string one = R"({"name": "f", "arguments": {"x": "]"}})";
  expect(ToolFormat::kGeneric, one, {"", {f}});
  expect(ToolFormat::kGeneric, "[" + one + ", " + one + "]\n", {"", {f, f}});
  expect(ToolFormat::kGeneric,
         "[" + one + R"(, {"name": "f", "arg)",
         {R"(, {"name": "f", "arg)", {f}});
  for (const std::string text : {"plain", "[1, 2]", "[", "", "[{\"a\": 1}]", "<|python_tag|>{}"}) {
    expect(ToolFormat::kGeneric, text, {text, {}});
  }
}

TEST(ToolCalls, EachCallOfAGenericListIsGivenAsSoonAsItIsWhole) {
  ToolCallParser parser(ToolFormat::kGeneric);
  EXPECT_EQ(parser.push(R"([{"name": "f"}, )").calls.size(), 1U);
  EXPECT_EQ(parser.push(R"({"name": "g"})").calls.size(), 1U);
  EXPECT_EQ(parser.push("]").text, "");
  EXPECT_EQ(parser.finish().text, "");
}

/// What an answer that a limit cut off here comes to.
Outcome cut_off(ToolFormat format, const std::string& answer) {
  Parse parse{.parser = ToolCallParser(format)};
  parse.take(parse.parser.push(answer));
  parse.take(parse.parser.finish(/*cut=*/true));
  return parse.outcome;
}

ToolCall begun(const std::string& name, const std::string& arguments) {
  return {.name = name, .arguments = arguments, .whole = false};
}

TEST(ToolCalls, OneThatIsCutOffIsGivenAsFarAsItGoes) {
  const std::string hermes = "Hm.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"a";
  EXPECT_EQ(cut_off(ToolFormat::kHermes, hermes), (Outcome{"Hm.", {begun("f", R"({"x":"a)")}}));
  const std::string list = R"([TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "argu)";
  EXPECT_EQ(cut_off(ToolFormat::kMistral, list), (Outcome{"", {{"f", "{}"}, begun("g", "")}}));
  EXPECT_EQ(cut_off(ToolFormat::kMistral, R"([TOOL_CALLS]f[ARGS]{"x": )"),
            (Outcome{"", {begun("f", R"({"x":)")}}));
  EXPECT_EQ(cut_off(ToolFormat::kLlama3, R"({"name": "f", "parameters": {"x")"),
            (Outcome{"", {begun("f", R"({"x")")}}));
  EXPECT_EQ(cut_off(ToolFormat::kGeneric, R"([{"name": "f"}, {"name": "g", "arguments": {"y)"),
            (Outcome{"", {{"f", "{}"}, begun("g", R"({"y)")}}));
}

TEST(ToolCalls, ArgumentsOfOneThatIsCutOffAreTheBeginningOfAnObject) {
  const auto arguments = [](const std::string& begun) {
    return cut_off(ToolFormat::kHermes, R"(<tool_call>{"name": "f", "arguments": )" + begun);
  };
  EXPECT_EQ(arguments(R"("{\"x\": \"a\u00)"), (Outcome{"", {begun("f", R"({"x":"a)")}}));
  EXPECT_EQ(arguments(R"("{}")"), (Outcome{"", {{"f", "{}"}}}));
  EXPECT_EQ(arguments(R"({"x": 1}, "id": "3)"), (Outcome{"", {{"f", R"({"x":1})"}}}));
  EXPECT_EQ(arguments(R"(")"), (Outcome{"", {begun("f", "")}}));
  for (const std::string other : {R"("x)", "l_call {\"x\": 1", "[1, "}) {
    EXPECT_TRUE(arguments(other).calls.empty()) << other;
  }
  const std::string odd = R"([TOOL_CALLS]a"b[ARGS]{"x)";
  EXPECT_TRUE(cut_off(ToolFormat::kMistral, odd).calls.empty());
}

TEST(ToolCalls, NoMarkupIsLeftOfOneWithoutAName) {
  for (const std::string begin :
       {"", "\n", "\n{", "\n{\"na", "\n{\"name\": ", "\n{\"name\": \"ge"}) {
    EXPECT_EQ(cut_off(ToolFormat::kHermes, "Hm.<tool_call>" + begin), (Outcome{"Hm.", {}}))
        << begin;
  }
  EXPECT_EQ(cut_off(ToolFormat::kMistral, "[TOOL_CALLS]get"), (Outcome{}));
}

TEST(ToolCalls, WhereverAnAnswerIsCutOffNoMarkupIsShown) {
  const std::string call = R"({"name": "f\"", "arguments": {"x": "}]", "y": [1, {"z": 2}]}})";
  const std::pair<ToolFormat, std::string> answers[] = {
      {ToolFormat::kHermes, "<tool_call>\n" + call + "\n</tool_call>\n<tool_call>" + call},
      {ToolFormat::kMistral, "[TOOL_CALLS][" + call + ", " + call + "]"},
      {ToolFormat::kMistral, R"([TOOL_CALLS]f[ARGS]{"x": [1]}[TOOL_CALLS]g{"y": 2})"}};
  for (const auto& [format, answer] : answers) {
    // From the first whole marker on; a part of one may be any text.
    for (std::size_t size = 12; size < answer.size(); ++size) {
      const Outcome outcome = cut_off(format, answer.substr(0, size));
      EXPECT_EQ(outcome.text.find_first_of("{}"), std::string::npos) << answer.substr(0, size);
      EXPECT_LE(outcome.calls.size(), 2U);
      for (const ToolCall& one : outcome.calls) {
        EXPECT_FALSE(one.name.empty()) << answer.substr(0, size);
      }
    }
  }
}

TEST(ToolCalls, AnythingMayBeCutOff) {
  constexpr std::uint64_t kSeed = 20'261'127;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  const std::vector<std::string> parts{"<tool_call>",
                                       "</tool_call>",
                                       "[TOOL_CALLS]",
                                       "[ARGS]",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       "\"",
                                       "\\",
                                       "name",
                                       "arguments",
                                       ":",
                                       ",",
                                       " ",
                                       "\"name\": \"f\"",
                                       "f",
                                       "\"arguments\": "};
  for (int i = 0; i < 20'000; ++i) {
    std::string answer;
    for (std::uint64_t left = rng.below(14); left > 0; --left) {
      answer += parts[rng.below(parts.size())];
    }
    for (const ToolFormat format :
         {ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral, ToolFormat::kGeneric}) {
      const Outcome outcome = cut_off(format, answer);
      EXPECT_TRUE(outcome.calls.empty() ||
                  std::none_of(outcome.calls.begin(),
                               outcome.calls.end(),
                               [](const ToolCall& call) { return call.name.empty(); }))
          << answer;
    }
  }
}

TEST(ToolCalls, WhatIsCutOffAndIsNoCallStaysText) {
  for (const std::string text : {"<tool_call>[1, ", "<tool_call>{\"x\": ", "a <tool"}) {
    EXPECT_EQ(cut_off(ToolFormat::kHermes, text), (Outcome{text, {}}));
  }
  for (const std::string text : {R"({"name": "Ada", "age": 3)", R"({"na)", R"({"name": "Ada")"}) {
    EXPECT_EQ(cut_off(ToolFormat::kLlama3, text), (Outcome{text, {}})) << "may be any object";
  }
}

TEST(ToolCalls, ACallIsGivenAsSoonAsItIsWhole) {
  ToolCallParser parser(ToolFormat::kHermes);
  EXPECT_EQ(parser.push("Yes").text, "Yes");
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f\"}</tool_call").calls.empty());
  EXPECT_EQ(parser.push(">").calls.size(), 1U);
}

/// The calls of an answer that is taken in two parts, pieces put together.
Outcome pieces_of(ToolFormat format,
                  const std::string& answer,
                  std::size_t cut,
                  std::size_t& given) {
  ToolCallParser parser(format, GiveCalls::kAsTheyCome);
  Outcome outcome;
  given = 0;
  const auto take = [&](const ToolCallParser::Found& found) {
    outcome.text += found.text;
    for (const ToolCall& call : found.calls) {
      ++given;
      if (call.continues) {
        outcome.calls.back().arguments += call.arguments;
        outcome.calls.back().whole = call.whole;
      } else {
        outcome.calls.push_back(call);
      }
    }
  };
  take(parser.push(std::string_view(answer).substr(0, cut)));
  take(parser.push(std::string_view(answer).substr(cut)));
  take(parser.finish());
  return outcome;
}

TEST(ToolCalls, ArgumentsAreGivenAsTheyCome) {
  const std::string arguments = R"({"a": [1, {"b": "}</x> \" {"}], "c": {}})";
  const std::string named = R"({"name": "f", "arguments": )" + arguments + "}";
  const ToolCall call{"f", R"({"a":[1,{"b":"}</x> \" {"}],"c":{}})"};
  const std::vector<std::pair<ToolFormat, std::string>> answers{
      {ToolFormat::kHermes, "<tool_call>\n" + named + "\n</tool_call>"},
      {ToolFormat::kLlama3, R"({"name": "f", "parameters": )" + arguments + "}"},
      {ToolFormat::kLlama3,
       R"({"type": "function", "name": "f", "parameters": )" + arguments + "}"},
      {ToolFormat::kGeneric, "[" + named + "]"},
      {ToolFormat::kMistral, "[TOOL_CALLS]" + named},
      {ToolFormat::kMistral, "[TOOL_CALLS] [" + named + "]"},
      {ToolFormat::kMistral, "[TOOL_CALLS]f[ARGS]" + arguments}};
  for (const auto& [format, once] : answers) {
    const bool twice = format != ToolFormat::kGeneric;
    const std::string answer = twice ? once + once : once;
    const Calls expected = twice ? Calls{call, call} : Calls{call};
    std::size_t most = 0;
    for (std::size_t cut = 0; cut <= answer.size(); ++cut) {
      std::size_t given = 0;
      EXPECT_EQ(pieces_of(format, answer, cut, given), (Outcome{"", expected}))
          << answer << " cut at " << cut;
      most = std::max(most, given);
    }
    EXPECT_EQ(most, expected.size() + 1) << "a call is given in the part where it begins";
  }
}

TEST(ToolCalls, WhatCannotBeGivenAsItComesIsGivenWhole) {
  std::size_t given = 0;
  for (const auto& [answer, call] : std::vector<std::pair<std::string, ToolCall>>{
           {R"({"name": "f", "arguments": " {\"x\": {}}"})", {"f", R"({"x":{}})"}},
           {R"({"arguments": {"x": 1}, "name": "f"})", {"f", R"({"x":1})"}},
           {R"({"name": "f"})", {"f", "{}"}}}) {
    const std::string marked = "<tool_call>" + answer + "</tool_call>";
    EXPECT_EQ(pieces_of(ToolFormat::kHermes, marked, marked.size() / 2, given),
              (Outcome{"", {call}}))
        << answer;
  }
  const std::string text = R"({"answer": {"name": "f"}})";
  EXPECT_EQ(pieces_of(ToolFormat::kGeneric, text, 9, given), (Outcome{text, {}}));
}

TEST(ToolCalls, ArgumentsThatAreWrittenAsAStringAreGivenAsTheyCome) {
  std::size_t given = 0;
  const std::string answer =
      R"(<tool_call>{"name": "f", "arguments": "{\"x\": \"\u00e9}\"}", "id": "}"}</tool_call>)";
  EXPECT_EQ(pieces_of(ToolFormat::kHermes, answer, 50, given),
            (Outcome{"", {{"f", "{\"x\":\"\u00e9}\"}"}}}));
  EXPECT_EQ(given, 2U);
}

TEST(ToolCalls, CallsOfAListOfMistralsAreGivenOneByOne) {
  ToolCallParser parser(ToolFormat::kMistral, GiveCalls::kAsTheyCome);
  const auto first = parser.push(R"([TOOL_CALLS][{"name": "f", "arguments": {"x": 1)");
  ASSERT_EQ(first.calls.size(), 1U);
  EXPECT_EQ(first.calls[0].arguments, R"({"x":1)");
  EXPECT_EQ(parser.push(R"(}, "id": "a]"}, {"name": "g"})").calls.back(), (ToolCall{"g", "{}"}));
  EXPECT_EQ(parser.push("]").text, "");
  EXPECT_EQ(parser.push(" and").text, " and");
}

TEST(ToolCalls, AListOfMistralsThatHoldsNoCallsIsText) {
  std::size_t given = 0;
  for (const std::string text : {"[TOOL_CALLS][",
                                 "[TOOL_CALLS] []x",
                                 "[TOOL_CALLS][1, 2]",
                                 R"([TOOL_CALLS][{"name": 1}])",
                                 "[TOOL_CALLS][,"}) {
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(pieces_of(ToolFormat::kMistral, text, cut, given), (Outcome{text, {}}));
    }
  }
  const std::string half = R"([TOOL_CALLS][{"name": "f"}, {"name": 1}] x)";
  EXPECT_EQ(pieces_of(ToolFormat::kMistral, half, 20, given),
            (Outcome{R"(, {"name": 1}] x)", {{"f", "{}"}}}));
}

TEST(ToolCalls, OneThatBreaksBehindItsBeginningStaysACall) {
  std::size_t given = 0;
  const std::string head = R"(<tool_call>{"name": "f", "arguments": {"x": {"y": 1})";
  EXPECT_EQ(pieces_of(ToolFormat::kHermes, head + "</tool_call> end", 40, given),
            (Outcome{" end", {{"f", R"({"x":{"y":1})", false}}}));
  EXPECT_EQ(pieces_of(ToolFormat::kHermes, head, 40, given),
            (Outcome{"", {{"f", R"({"x":{"y":1})", false}}}));
}

}  // namespace
}  // namespace heddle::text
