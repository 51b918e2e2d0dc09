#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/json_string_reader.h"
#include "text/answer_format.h"
#include "text/call_json.h"
#include "text/json_scanner.h"

namespace heddle::text {

/// When a call is given.
enum class GiveCalls : std::uint8_t {
  kWhole,  ///< When it is whole: what turns out to be broken is text.
  /// From where its arguments begin, piece by piece: what is broken behind that stays a call. Calls
  /// whose name is behind their arguments, or that have none, are given whole.
  kAsTheyCome,
};

/// Finds the calls of tools in an answer as it arrives. Text passes at once, but for what may still
/// become a call; a call is given when it is whole. What turns out to be none, or a broken one,
/// comes back as the text it was. The result does not depend on the portions in which the text
/// comes, and the arguments of a call not on when it is given. White space around calls is dropped.
/// Owned by one thread.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolFormat format, GiveCalls give = GiveCalls::kWhole);

  /// What has become certain: text, which stands before the calls.
  struct Found {
    std::string text{};
    std::vector<ToolCall> calls{};
  };

  Found push(std::string_view text);
  /// The end of the answer: a call that only lacks its closing marker counts. One that is only
  /// begun is text, unless the answer was `cut` off: then it is given as far as it goes, or, where
  /// not even its name is there, dropped.
  Found finish(bool cut = false);

 private:
  enum class State : std::uint8_t {
    kText,   ///< Looks for an opening marker.
    kStart,  ///< Llama 3, generic: nothing but what stands around calls so far, or since the last.
    kList,   ///< As they come: in a list of Mistral's, between its calls.
    kBody,   ///< Within what may be a call, of which all is in body_.
    kArguments,  ///< Within the arguments of a call that has been given.
    kTail,       ///< Behind them, up to the end of the call.
    kPlain,      ///< Text to the end.
  };

  void step(char c, Found& found);
  void text_step(char c, Found& found);
  void start_step(char c, Found& found);
  void body_step(char c, Found& found);
  void mistral_step(char c, Found& found);
  void list_step(char c, Found& found);
  /// Gives the call whose arguments begin with the last character of body_, if they do.
  bool begin_arguments(Found& found);
  void arguments_step(char c, Found& found);
  void begin_tail();
  void tail_step(char c);
  void end_call();
  /// Whether calls are JSON alone, whose end is the end of a call.
  [[nodiscard]] bool ends_with_json() const;
  /// The calls in the body of an answer that was cut off: whole ones, and the begun one. Nothing
  /// where it is none.
  [[nodiscard]] std::optional<std::vector<ToolCall>> cut_calls() const;
  /// Ends the body: calls, or the text that it was.
  void close(std::optional<std::vector<ToolCall>> calls, State next, Found& found);
  void show(std::string_view text, Found& found);

  ToolFormat format_;
  GiveCalls give_;
  State state_;
  std::string
      held_{};  ///< White space, and the beginning of an opening marker, that may be dropped.
  std::size_t white_ = 0;   ///< How many characters of white space held_ begins with, at least.
  std::string body_{};      ///< From the opening marker on, and white space before that.
  std::size_t opened_ = 0;  ///< Where in body_ what follows the marker begins.
  std::size_t json_ = 0;    ///< Where in body_ its JSON begins; 0: not yet.
  JsonScanner scanner_{};
  bool named_ = false;   ///< In Mistral's format: the name stands before that JSON.
  bool list_ = false;    ///< As they come: the call is in a list of Mistral's.
  bool called_ = false;  ///< There was a call.
  ArgumentPieces pieces_{};
  bool quoted_ = false;  ///< The arguments are written as a string, which reader_ reads.
  spec::JsonStringReader reader_{};
};

}  // namespace heddle::text
