#include "text/rust_abi.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace heddle::text::rust {

namespace {

/// "panicked at FILE:LINE:COLUMN:\nREASON" without where it was, and of the reason its first line.
std::string_view reason_of(std::string_view panic) {
  if (panic.starts_with("panicked at ")) {
    panic.remove_prefix(std::min(panic.size(), panic.find('\n')));
    panic.remove_prefix(std::min(panic.size(), panic.find_first_not_of('\n')));
  }
  constexpr std::size_t kReasonMax = 200;
  panic = panic.substr(0, panic.find('\n')).substr(0, kReasonMax);
  // A failed unwrap says what it found; source files are named in it where errors were chained.
  return panic.find(".rs:") == std::string_view::npos ? panic : std::string_view();
}

}  // namespace

Error failure(std::int32_t code, std::string_view message) {
  switch (code) {
    case 1:
      return Error{Code::kInvalidArgument, std::string(message)};
    case 2:
      return Error{Code::kCorrupt, std::string(message)};
    case 4:
      return Error{Code::kUnavailable, std::string(message)};
    default:
      break;
  }
  log::warning("the text library panicked", {{"panic", message}});
  const std::string_view reason = reason_of(message);
  std::string text = "the text library failed on this input";
  if (!reason.empty()) {
    text += ": " + std::string(reason);
  }
  return Error{Code::kCorrupt, std::move(text)};
}

}  // namespace heddle::text::rust
