#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/marker_scanner.h"
#include "text/tool_calls.h"

namespace heddle::text {

/// Tokens that end an answer in OpenAI's harmony format, whatever a model's files say: its last
/// message, and a call.
inline constexpr std::string_view kHarmonyEnds[] = {"<|return|>", "<|call|>"};
/// The tokens that part messages and what is in them.
inline constexpr std::string_view kHarmonyMarkers[] = {"<|start|>",
                                                       "<|channel|>",
                                                       "<|constrain|>",
                                                       "<|message|>",
                                                       "<|end|>",
                                                       "<|call|>",
                                                       "<|return|>"};
/// What a prompt that ends with `<|start|>assistant` goes on with where all of the answer is to be
/// text.
inline constexpr std::string_view kHarmonyFinal = "<|channel|>final<|message|>";

/// Takes apart an answer in OpenAI's harmony format (github.com/openai/harmony), as gpt-oss
/// writes it, as it arrives: messages, each with a head that names a channel, and whom it is for.
///
///     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
///     <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
///
/// Messages in the channel `analysis` are thoughts, those for somebody are calls, all others are
/// text. Two of a kind that follow each other are parted by an empty line. A call whose arguments
/// are no JSON object is text, but where it is given as it comes and begins as one. An answer that
/// begins with neither a marker nor `to=` is text as it stands. The result does not depend on the
/// portions in which the text comes. Owned by one thread.
class HarmonyParser {
 public:
  /// @param thoughts  Thoughts are told apart; else they are text.
  /// @param calls     Calls are looked for; else their arguments are text.
  /// @param prompt    How the prompt ends: where it is within a message, the answer goes on there.
  HarmonyParser(bool thoughts,
                bool calls,
                std::string_view prompt,
                GiveCalls give = GiveCalls::kWhole);

  /// What has become certain.
  struct Found {
    std::string reasoning{};
    std::string text{};
    std::vector<ToolCall> calls{};
  };

  Found push(std::string_view text);
  /// The end of the answer: a call counts. If the answer was `cut` off within one, it is given as
  /// far as it goes.
  Found finish(bool cut = false);

  /// Whether what comes next is thought, unless a message ends.
  [[nodiscard]] bool thinking() const { return state_ == State::kThought && thoughts_; }

 private:
  enum class State : std::uint8_t {
    kStart,  ///< Nothing but white space so far, or what may be a head.
    kHead,   ///< Within one, of which all is in head_.
    kThought,
    kText,
    kCall,       ///< Of which all arguments are in body_.
    kArguments,  ///< Within those of a call that has been given.
    kTail,       ///< Behind them, up to the end of the message.
  };

  /// What thoughts, or text, have become so far.
  struct Stream {
    bool told = false;  ///< Anything.
    bool next = false;  ///< What comes is of another message.
  };

  void put(char c, Found& found);
  void call_step(char c, Found& found);
  void meet(std::string_view marker, Found& found);
  void begin_message();
  void end_message(bool cut, Found& found);
  static void show(std::string_view text, Stream& stream, std::string& target);

  bool thoughts_;
  bool calls_;
  GiveCalls give_;
  State state_ = State::kStart;
  MarkerScanner scanner_{kHarmonyMarkers};
  std::string head_{};  ///< Of the message, markers in it included.
  std::string body_{};  ///< Of a call.
  std::string name_{};  ///< Of a call.
  ArgumentPieces pieces_{};
  Stream thought_{};
  Stream text_{};
};

}  // namespace heddle::text
