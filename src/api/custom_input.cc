#include "api/custom_input.h"

#include <simdjson.h>

namespace heddle::api {

namespace {

constexpr std::string_view kHead = R"({"input":")";

}  // namespace

std::string CustomInput::push(std::string_view arguments) {
  std::string text;
  for (const char c : arguments) {
    switch (state_) {
      case State::kHead:
        held_ += c;
        if (held_ == kHead) {
          state_ = State::kInput;
        } else if (!kHead.starts_with(held_)) {
          state_ = State::kOther;
        }
        break;
      case State::kInput:
        if (!reader_.push(c, text)) {
          state_ = State::kDone;
        }
        break;
      case State::kDone:
        break;
      case State::kOther:
        held_ += c;
        break;
    }
  }
  return text;
}

std::string CustomInput::finish() {
  if (state_ != State::kOther) {
    return "";
  }
  simdjson::dom::parser parser;
  simdjson::dom::element parsed;
  std::string_view input;
  if (parser.parse(held_).get(parsed) == simdjson::SUCCESS &&
      parsed["input"].get_string().get(input) == simdjson::SUCCESS) {
    return std::string(input);
  }
  return held_;
}

}  // namespace heddle::api
