// Thoughts and calls of tools in an answer: what is found does not depend on the portions in which
// the text comes, and calls have names and arguments that are JSON. Where the same text is left,
// calls that are given piece by piece are those that are given whole, but for broken JSON. The
// first byte chooses the formats, the second the length of portions.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "spec/json.h"
#include "text/gemma4.h"
#include "text/harmony.h"
#include "text/reasoning.h"
#include "text/tool_calls.h"

namespace {

using heddle::text::Gemma4Parser;
using heddle::text::GiveCalls;
using heddle::text::HarmonyParser;
using heddle::text::ReasoningFormat;
using heddle::text::ReasoningSplitter;
using heddle::text::ToolCall;
using heddle::text::ToolCallParser;
using heddle::text::ToolFormat;

struct Answer {
  std::string reasoning{};
  std::string text{};
  std::vector<ToolCall> calls{};
  friend bool operator==(const Answer&, const Answer&) = default;
};

/// Takes in `found`, whose first pieces may go on a call of before.
void append(Answer& answer, const ToolCallParser::Found& found) {
  answer.text += found.text;
  for (const ToolCall& call : found.calls) {
    if (!call.continues) {
      answer.calls.push_back(call);
      continue;
    }
    HEDDLE_CHECK(!answer.calls.empty() && call.name.empty() && !answer.calls.back().whole);
    answer.calls.back().arguments += call.arguments;
    answer.calls.back().whole = call.whole;
  }
}

Answer read(std::uint8_t formats, std::string_view text, std::size_t portion) {
  const auto reasoning = (formats & 4U) != 0 ? ReasoningFormat::kThink : ReasoningFormat::kNone;
  ReasoningSplitter splitter(reasoning, (formats & 8U) != 0 ? "<think>" : "");
  const bool generic = (formats & 16U) != 0;
  const GiveCalls give = (formats & 128U) != 0 ? GiveCalls::kAsTheyCome : GiveCalls::kWhole;
  ToolCallParser parser(generic ? ToolFormat::kGeneric : static_cast<ToolFormat>(formats & 3U),
                        give);
  Answer answer;
  const auto take = [&](const ReasoningSplitter::Parts& parts) {
    answer.reasoning += parts.reasoning;
    append(answer, parser.push(parts.text));
  };
  for (std::size_t at = 0; at < text.size(); at += portion) {
    take(splitter.push(text.substr(at, portion)));
  }
  take(splitter.finish());
  append(answer, parser.finish(/*cut=*/(formats & 32U) != 0));
  return answer;
}

/// The same by a parser of a format that is a model's own.
template <typename Parser>
Answer read_by(Parser parser, std::uint8_t formats, std::string_view text, std::size_t portion) {
  Answer answer;
  const auto take = [&](const HarmonyParser::Found& found) {
    answer.reasoning += found.reasoning;
    append(answer, {.text = found.text, .calls = found.calls});
  };
  for (std::size_t at = 0; at < text.size(); at += portion) {
    take(parser.push(text.substr(at, portion)));
  }
  take(parser.finish(/*cut=*/(formats & 32U) != 0));
  return answer;
}

Answer read_harmony(std::uint8_t formats, std::string_view text, std::size_t portion) {
  const bool begun = (formats & 8U) != 0;
  return read_by(HarmonyParser((formats & 4U) != 0,
                               (formats & 1U) != 0,
                               begun ? "<|start|>assistant<|channel|>analysis<|message|>" : "",
                               (formats & 128U) != 0 ? GiveCalls::kAsTheyCome : GiveCalls::kWhole),
                 formats,
                 text,
                 portion);
}

Answer read_gemma4(std::uint8_t formats, std::string_view text, std::size_t portion) {
  const bool begun = (formats & 8U) != 0;
  Answer answer = read_by(Gemma4Parser((formats & 4U) != 0,
                                       (formats & 1U) != 0,
                                       begun ? "<|turn>model\n<|channel>thought\n" : ""),
                          formats,
                          text,
                          portion);
  for (const ToolCall& call : answer.calls) {
    HEDDLE_CHECK(!call.whole || heddle::text::is_json_object(call.arguments));
  }
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool own = (data[0] & 64U) != 0;
  const auto way = !own ? read : (data[0] & 2U) != 0 ? read_gemma4 : read_harmony;
  const Answer whole = way(data[0], text, text.size() + 1);
  HEDDLE_CHECK(whole == way(data[0], text, 1));
  HEDDLE_CHECK(whole == way(data[0], text, 1 + data[1] % 16U));
  for (const ToolCall& call : whole.calls) {
    HEDDLE_CHECK(!call.name.empty());
    HEDDLE_CHECK(call.arguments.empty() ? !call.whole : call.arguments.front() == '{');
  }
  const Answer given_whole = (data[0] & 128U) == 0 ? whole : way(data[0] & 127U, text, 1);
  const Answer in_pieces = (data[0] & 128U) != 0 ? whole : way(data[0] | 128U, text, 1);
  if (given_whole.text == in_pieces.text && given_whole.calls.size() == in_pieces.calls.size()) {
    for (std::size_t i = 0; i < whole.calls.size(); ++i) {
      const ToolCall& call = given_whole.calls[i];
      HEDDLE_CHECK(call.name == in_pieces.calls[i].name);
      HEDDLE_CHECK(call.arguments == in_pieces.calls[i].arguments ||
                   !heddle::text::is_json_object(call.arguments));
    }
  }
  return 0;
}
