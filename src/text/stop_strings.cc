#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8_stream.h"

namespace heddle::text {
namespace {

bool is_utf8(std::string_view text) {
  std::string checked;
  Utf8Stream utf8;
  utf8.push(text, checked);
  utf8.flush(checked);
  return checked == text;
}

}  // namespace

StopStrings::Search::Search(std::string stop) : wanted(std::move(stop)), border(wanted.size() + 1) {
  for (std::size_t n = 2; n <= wanted.size(); ++n) {
    std::size_t length = border[n - 1];
    while (length > 0 && wanted[length] != wanted[n - 1]) {
      length = border[length];
    }
    border[n] = wanted[length] == wanted[n - 1] ? length + 1 : 0;
  }
}

bool StopStrings::Search::advance(char byte) {
  while (matched > 0 && wanted[matched] != byte) {
    matched = border[matched];
  }
  if (wanted[matched] == byte) {
    ++matched;
  }
  return matched == wanted.size();
}

Result<StopStrings> StopStrings::make(std::vector<std::string> stops) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || !is_utf8(stops[i])) {
      return Error{Code::kInvalidArgument,
                   "stop[" + std::to_string(i) + "] " +
                       (stops[i].empty() ? "is empty; leave it out" : "is not valid UTF-8")};
    }
  }
  return StopStrings(std::move(stops));
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  searches_.reserve(stops.size());
  for (std::string& stop : stops) {
    searches_.emplace_back(std::move(stop));
  }
}

StopStrings::Found StopStrings::push(std::string_view text) {
  HEDDLE_CHECK(!ended_);
  Found found;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::size_t longest = 0;
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      Search& search = searches_[i];
      if (search.advance(text[at]) && search.wanted.size() > longest) {
        longest = search.wanted.size();
        found.stop = i;
      }
    }
    if (found.stop) {
      held_ += text.substr(0, at + 1);
      held_.resize(held_.size() - longest);
      found.text = std::exchange(held_, {});
      ended_ = true;
      return found;
    }
  }
  held_ += text;
  std::size_t keep = 0;
  for (const Search& search : searches_) {
    keep = std::max(keep, search.matched);
  }
  found.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, found.text.size());
  return found;
}

std::string StopStrings::flush() {
  for (Search& search : searches_) {
    search.matched = 0;
  }
  return std::exchange(held_, {});
}

}  // namespace heddle::text
