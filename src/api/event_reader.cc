#include "api/event_reader.h"

namespace heddle::api {

std::vector<std::string> EventReader::push(std::string_view bytes) {
  constexpr std::string_view kData = "data:";
  rest_ += bytes;
  std::vector<std::string> events;
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos;
       end = rest_.find('\n', begin)) {
    std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    if (line.starts_with(kData)) {
      line.remove_prefix(kData.size());
      line.remove_prefix(line.starts_with(' ') ? 1 : 0);
      line.remove_suffix(line.ends_with('\r') ? 1 : 0);
      if (line != "[DONE]") {
        events.emplace_back(line);
      }
    }
    begin = end + 1;
  }
  rest_.erase(0, begin);
  return events;
}

}  // namespace heddle::api
