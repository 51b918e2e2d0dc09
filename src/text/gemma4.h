#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/harmony.h"
#include "text/marker_scanner.h"
#include "text/reasoning.h"
#include "text/tool_calls.h"

namespace heddle::text {

/// Tokens that end an answer of Gemma 4, whatever a model's files say: its turn, and the place of
/// what its calls have given.
inline constexpr std::string_view kGemma4Ends[] = {"<turn|>", "<|tool_response>"};
/// Before and behind a string among a call's arguments.
inline constexpr std::string_view kGemma4Quote = "<|\"|>";
inline constexpr std::string_view kGemma4CallOpen = "<|tool_call>";
inline constexpr std::string_view kGemma4CallClose = "<tool_call|>";
/// Before and behind a thought.
inline constexpr std::string_view kGemma4Thought[] = {"<|channel>", "<channel|>"};
/// The tokens that part thoughts, text and calls.
inline constexpr std::string_view kGemma4Markers[] = {
    kGemma4Thought[0], kGemma4Thought[1], kGemma4CallOpen, kGemma4CallClose, kGemma4Quote};

/// Whether a prompt ends within a thought of Gemma 4, before one or after one that is over.
[[nodiscard]] PromptEnd gemma4_prompt_end(std::string_view prompt);

/// What Gemma 4 wrote as arguments, `{key:<|"|>text<|"|>,other:[1,true]}`, as a JSON object. Keys
/// may have quotes too. A word that is neither a number nor true, false or null is a string. Where
/// they are `cut` off, as far as they go. Nothing where they are broken or nested too deep.
[[nodiscard]] std::optional<std::string> gemma4_arguments(std::string_view text, bool cut = false);

/// Takes apart an answer of Gemma 4 as it arrives (ai.google.dev/gemma/docs, "Gemma 4 Prompt
/// Formatting"):
///
///     <|channel>thought\n...<channel|>text<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>
///
/// Markers, the word `thought` and white space around thoughts and calls are dropped. Two thoughts
/// are parted by an empty line. A call is given when it is whole; a broken one is text. The result
/// does not depend on the portions in which the text comes. Owned by one thread.
class Gemma4Parser {
 public:
  using Found = HarmonyParser::Found;

  /// @param thoughts  Thoughts are told apart; else they are text.
  /// @param calls     Calls are looked for; else they are text.
  /// @param prompt    How the prompt ends: where it is within a thought, the answer goes on there.
  Gemma4Parser(bool thoughts, bool calls, std::string_view prompt);

  Found push(std::string_view text);
  /// The end of the answer: a call that only lacks its closing marker counts. If the answer was
  /// `cut` off within one, it is given as far as it goes.
  Found finish(bool cut = false);

  /// Whether what comes next is thought, unless that ends.
  [[nodiscard]] bool thinking() const { return state_ == State::kThought; }

 private:
  enum class State : std::uint8_t { kText, kThought, kCall };

  void put(char c, Found& found);
  void meet(std::string_view marker, Found& found);
  void begin_thought();
  void end_call(bool closed, bool cut, Found& found);
  void say(std::string_view text, Found& found);

  bool thoughts_;
  bool calls_;
  State state_ = State::kText;
  bool after_ = false;    ///< Of text: nothing but white space behind a thought or a call.
  bool told_ = false;     ///< Of this thought: some of it.
  bool thought_ = false;  ///< Any thought before this one was told.
  MarkerScanner scanner_{kGemma4Markers};
  std::string white_{};    ///< White space that is dropped where a marker follows.
  std::string label_{};    ///< What a thought begins with, as long as it may be `thought\n`.
  bool labelled_ = false;  ///< That is over.
  std::string body_{};     ///< Of a call.
};

}  // namespace heddle::text
