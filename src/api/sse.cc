#include "api/sse.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::api {

std::string sse_event(std::string_view data) {
  HEDDLE_CHECK(data.find_first_of("\r\n") == std::string_view::npos);
  std::string event = "data: ";
  event += data;
  event += "\n\n";
  return event;
}

std::string sse_event(std::string_view name, std::string_view data) {
  return "event: " + std::string(name) + "\n" + sse_event(data);
}

std::string sse_comment(std::string_view text) {
  std::string comment = ": ";
  comment += text;
  std::replace(comment.begin(), comment.end(), '\n', ' ');
  std::replace(comment.begin(), comment.end(), '\r', ' ');
  comment += "\n\n";
  return comment;
}

}  // namespace heddle::api
