#include "gateway/request_id.h"

#include <algorithm>

namespace heddle::gateway {

namespace {

constexpr std::size_t kLongest = 128;

}  // namespace

bool is_sane_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kLongest && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

std::string draw_request_id(Rng& rng) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id(15, '0');
  std::uint64_t bits = rng.next();
  for (char& digit : id) {
    digit = kDigits[bits & 15U];
    bits >>= 4U;
  }
  return id;
}

}  // namespace heddle::gateway
