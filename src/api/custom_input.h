#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spec/json_string_reader.h"

namespace heddle::api {

/// The text that a custom tool of responses is called with. The model writes it as the argument
/// `input` of a function, whose arguments come here piece by piece, without white space outside of
/// strings. Arguments that do not begin with `input` are told at their end; those that have none,
/// as they are.
class CustomInput {
 public:
  /// Takes the next piece of the arguments; what it adds to the text.
  [[nodiscard]] std::string push(std::string_view arguments);
  /// The end of the arguments: what is left of the text.
  [[nodiscard]] std::string finish();

 private:
  enum class State : std::uint8_t { kHead, kInput, kDone, kOther };

  State state_ = State::kHead;
  std::string held_{};  ///< All arguments, while no part of the text is told.
  spec::JsonStringReader reader_{};
};

}  // namespace heddle::api
