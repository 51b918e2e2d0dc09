#include "cli/event_reader.h"

namespace heddle::cli {

std::vector<std::string> EventReader::push(std::string_view bytes) {
  constexpr std::string_view kData = "data: ";
  rest_ += bytes;
  std::vector<std::string> events;
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos;
       end = rest_.find('\n', begin)) {
    const std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    if (line.starts_with(kData) && line != "data: [DONE]") {
      events.emplace_back(line.substr(kData.size()));
    }
    begin = end + 1;
  }
  rest_.erase(0, begin);
  return events;
}

}  // namespace heddle::cli
