#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::api {

/// Takes server-sent events out of a stream that arrives in pieces.
class EventReader {
 public:
  /// The data of the events that became complete; comments and "[DONE]" are left out.
  std::vector<std::string> push(std::string_view bytes);

 private:
  std::string rest_{};
};

}  // namespace heddle::api
