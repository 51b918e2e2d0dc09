#pragma once

#include <string>
#include <string_view>

namespace heddle::api {

/// The data of the event that ends a stream of completions.
inline constexpr std::string_view kDone = "[DONE]";

/// One server-sent event: `data: <data>` and an empty line. `data` has no line breaks, as JSON
/// written by us has none.
[[nodiscard]] std::string sse_event(std::string_view data);

/// The same with a name: `event: <name>` stands before the data.
[[nodiscard]] std::string sse_event(std::string_view name, std::string_view data);

/// A comment, which clients skip; keeps connections and their owners alive. Line breaks in `text`
/// become spaces.
[[nodiscard]] std::string sse_comment(std::string_view text);

}  // namespace heddle::api
