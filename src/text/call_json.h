#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_scanner.h"

namespace heddle::text {

/// One call of a tool.
struct ToolCall {
  std::string name{};
  /// A JSON object as the model wrote it, but for white space outside of strings.
  std::string arguments{};
  bool whole = true;       ///< Else the answer was cut off within it, and so are its arguments.
  bool continues = false;  ///< No call of its own: its arguments go on those of the one before.
  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

/// `json`, which may be cut off, without the white space that is outside of strings.
[[nodiscard]] std::string dense_json(std::string_view json);

/// Whether it is a JSON object, and nothing else.
[[nodiscard]] bool is_json_object(std::string_view json);

/// The calls in a JSON object, or a list of them: {"name", "arguments" or "parameters"}. Of members
/// of one name the first counts. Nothing unless all of it is well formed.
[[nodiscard]] std::optional<std::vector<ToolCall>> parse_tool_calls(std::string_view json);

/// The call in an object that is only begun, as far as it goes. Nothing where it is none; one
/// without a name where that may still come, as the first member.
[[nodiscard]] std::optional<ToolCall> begun_call(std::string_view json);

/// The calls of a list that is cut off, or of one object: those that are whole, and the last as
/// begun_call. Nothing where one is none.
[[nodiscard]] std::optional<std::vector<ToolCall>> begun_calls(std::string_view json);

/// Whose arguments begin with the last character of `json`, an object that is only begun: its
/// name. The character is '{'; where the arguments are written as a string, the quote is right
/// before it. Nothing where no arguments begin there, or the name is not known by then.
[[nodiscard]] std::optional<std::string> name_before_arguments(std::string_view json);

/// The arguments of a call that is given piece by piece. Owned by one thread.
class ArgumentPieces {
 public:
  /// Gives the call `name`, whose arguments begin with '{'.
  void begin(std::string name, std::vector<ToolCall>& calls);
  /// Takes their next character. True when it ends the object, after which nothing may come.
  bool push(char c, std::vector<ToolCall>& calls);
  /// Whether what comes next is within a string.
  [[nodiscard]] bool in_string() const { return scanner_.in_string(); }

 private:
  JsonScanner scanner_{};
};

}  // namespace heddle::text
