// Calls that are given piece by piece are those that are given whole, to the byte, in every format
// and wherever the text is cut into portions or ends.

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/harmony.h"
#include "text/tool_calls.h"

namespace heddle::text {
namespace {

constexpr std::uint64_t kSeed = 20'261'129;

struct GivenCalls {
  std::string text{};
  std::vector<std::string> calls{};  ///< Name and arguments.
  bool begun = true;                 ///< Nothing went on a call that was not there.
  friend bool operator==(const GivenCalls&, const GivenCalls&) = default;
};

void PrintTo(const GivenCalls& given, std::ostream* out) {
  *out << '"' << given.text << '"';
  for (const std::string& call : given.calls) {
    *out << " " << call;
  }
}

std::string pick(Rng& rng, const std::vector<std::string>& all) {
  return all[rng.below(all.size())];
}

std::string white(Rng& rng) {
  return pick(rng, {"", "", " ", "\n", "\n    "});
}

/// A JSON string.
std::string drawn_string(Rng& rng) {
  const std::vector<std::string> parts{"a",
                                       " ",
                                       "}",
                                       "{",
                                       "]",
                                       "[",
                                       ",",
                                       ":",
                                       "\\\"",
                                       "\\\\",
                                       "\\n",
                                       "\u00e9",
                                       "\\u00e9",
                                       "\\ud83d\\ude00",
                                       "<",
                                       "/"};
  std::string text = "\"";
  for (std::uint64_t left = rng.below(6); left > 0; --left) {
    text += pick(rng, parts);
  }
  return text + "\"";
}

std::string drawn_value(Rng& rng, int depth);

std::string drawn_object(Rng& rng, int depth) {
  std::string object = "{" + white(rng);
  for (std::uint64_t left = rng.below(4); left > 0; --left) {
    object += drawn_string(rng) + white(rng) + ":" + white(rng) + drawn_value(rng, depth);
    object += (left > 1 ? "," : "") + white(rng);
  }
  return object + "}";
}

std::string drawn_value(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 5 : 3)) {
    case 0:
      return drawn_string(rng);
    case 1:
      return pick(rng, {"1", "-0.50", "1e30", "12345678901234567890"});
    case 2:
      return pick(rng, {"true", "false", "null"});
    case 3:
      return drawn_object(rng, depth - 1);
    default:
      return "[" + white(rng) + drawn_value(rng, depth - 1) + white(rng) + "]";
  }
}

/// A JSON string of `text`, escaped more than it need be.
std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    json += c == '"' || c == '\\' ? "\\" : "";
    json += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return json + "\"";
}

/// A call as JSON, in one of the ways that models write it.
std::string drawn_call(Rng& rng) {
  const std::string name = pick(rng, {R"("name": "f")", R"("name":"g.h")", R"("name" : "\u0066")"});
  const std::string arguments = drawn_object(rng, 2);
  const std::string key = pick(rng, {R"("arguments":)", R"("parameters": )"});
  switch (rng.below(8)) {
    case 0:
      return "{" + name + "}";
    case 1:
      return "{" + key + arguments + ", " + name + "}";
    case 2:
      return "{" + name + ", " + key + quoted(arguments) + "}";
    case 3:
      return R"({"type": "function", )" + name + "," + key + arguments + "}";
    case 4:
      return "{" + name + "," + key + arguments + R"(, "id": "a}1"})";
    default:
      return "{" + white(rng) + name + white(rng) + "," + white(rng) + key + arguments +
             white(rng) + "}";
  }
}

/// An answer with calls, text before them where the format lets it be.
std::string drawn_answer(Rng& rng, ToolFormat format) {
  const std::uint64_t count = 1 + rng.below(3);
  std::string answer = format == ToolFormat::kHermes || format == ToolFormat::kMistral
                           ? pick(rng, {"", "Let me see. "})
                           : "";
  const bool list = rng.below(2) == 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool first = i == 0;
    const bool last = i + 1 == count;
    switch (format) {
      case ToolFormat::kHermes:
        answer += "<tool_call>" + white(rng) + drawn_call(rng) + white(rng) + "</tool_call>\n";
        break;
      case ToolFormat::kLlama3:
        answer += (first ? "" : "; ") + drawn_call(rng);
        break;
      case ToolFormat::kGeneric:
        answer += (first ? "[" : ", ") + drawn_call(rng) + (last ? "]" : "");
        break;
      case ToolFormat::kHarmony:
        answer += std::string(first ? "" : "<|start|>assistant") +
                  "<|channel|>commentary to=functions.f <|constrain|>json<|message|>" + white(rng) +
                  drawn_object(rng, 2) + white(rng) + "<|call|>";
        break;
      default:
        if (list) {
          answer += (first ? "[TOOL_CALLS]" + white(rng) + "[" : ", ") + drawn_call(rng) +
                    (last ? "]" : "");
        } else {
          answer += "[TOOL_CALLS]" +
                    (rng.below(2) == 0 ? pick(rng, {"f", "f[ARGS]", " f "}) + drawn_object(rng, 2)
                                       : drawn_call(rng));
        }
    }
  }
  return answer;
}

template <class Parser>
GivenCalls take_all(Parser parser, std::string_view answer, Rng& rng, bool cut) {
  GivenCalls given;
  const auto take = [&given](const auto& found) {
    given.text += found.text;
    for (const ToolCall& call : found.calls) {
      given.begun = given.begun && call.continues == call.name.empty();
      if (!call.continues) {
        given.calls.push_back(call.name);
      }
      if (given.calls.empty()) {
        given.begun = false;
        continue;
      }
      given.calls.back() += call.arguments;
    }
  };
  while (!answer.empty()) {
    const std::size_t size = std::min<std::size_t>(answer.size(), 1 + rng.below(12));
    take(parser.push(answer.substr(0, size)));
    answer.remove_prefix(size);
  }
  take(parser.finish(cut));
  return given;
}

GivenCalls given_calls(
    ToolFormat format, GiveCalls give, std::string_view answer, Rng& rng, bool cut) {
  if (format == ToolFormat::kHarmony) {
    return take_all(HarmonyParser(true, true, "<|start|>assistant", give), answer, rng, cut);
  }
  return take_all(ToolCallParser(format, give), answer, rng, cut);
}

class CallPieces : public testing::TestWithParam<ToolFormat> {};

TEST_P(CallPieces, AreTheCallsThatAreGivenWhole) {
  Rng rng(kSeed);
  SCOPED_TRACE(kSeed);
  for (int i = 0; i < 3'000; ++i) {
    const std::string answer = drawn_answer(rng, GetParam());
    const GivenCalls whole = given_calls(GetParam(), GiveCalls::kWhole, answer, rng, false);
    ASSERT_FALSE(whole.calls.empty()) << answer;
    ASSERT_TRUE(whole.begun);
    ASSERT_EQ(given_calls(GetParam(), GiveCalls::kAsTheyCome, answer, rng, false), whole) << answer;
  }
}

TEST_P(CallPieces, AreThoseOfAnAnswerThatIsCutOff) {
  Rng rng(kSeed);
  SCOPED_TRACE(kSeed);
  for (int i = 0; i < 5'000; ++i) {
    const std::string all = drawn_answer(rng, GetParam());
    if (all.find("{\"arguments") != std::string::npos ||
        all.find("{\"parameters") != std::string::npos) {
      continue;  // Cut before its name, a call makes text of all the list that is given whole.
    }
    const std::string answer = all.substr(0, rng.below(all.size() + 1));
    const GivenCalls whole = given_calls(GetParam(), GiveCalls::kWhole, answer, rng, true);
    const GivenCalls pieces = given_calls(GetParam(), GiveCalls::kAsTheyCome, answer, rng, true);
    ASSERT_EQ(pieces, whole) << answer;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         CallPieces,
                         testing::Values(ToolFormat::kHermes,
                                         ToolFormat::kLlama3,
                                         ToolFormat::kMistral,
                                         ToolFormat::kGeneric,
                                         ToolFormat::kHarmony));

}  // namespace
}  // namespace heddle::text
