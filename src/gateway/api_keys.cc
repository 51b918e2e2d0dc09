#include "gateway/api_keys.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/base64.h"
#include "base/check.h"

namespace heddle::gateway {

namespace {

constexpr std::size_t kShownMax = 4096;

/// Whether both are equal, in a time that depends on the length of `shown` alone.
bool equal_in_constant_time(std::string_view shown, std::string_view key) {
  unsigned difference = shown.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char expected = key[i % key.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(shown[i] ^ expected));
  }
  return difference == 0;
}

/// Nothing for text that is not base64; its padding may lack.
std::optional<std::string> decoded(std::string_view text) {
  std::string padded(text.substr(0, text.find_last_not_of('=') + 1));
  padded.append((4 - padded.size() % 4) % 4, '=');
  return from_base64(padded);
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
  });
}

/// The key that was shown, in whichever form; empty when none was.
std::string shown_key(const Credentials& shown) {
  if (!shown.api_key.empty()) {
    return std::string(shown.api_key.substr(0, kShownMax));
  }
  const std::string_view text = shown.authorization.substr(0, kShownMax);
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) {
    return {};
  }
  const std::string_view scheme = text.substr(0, space);
  const std::string_view rest = text.substr(text.find_last_of(' ', text.size()) + 1);
  if (same_word(scheme, "bearer")) {
    return std::string(rest);
  }
  if (same_word(scheme, "basic")) {
    const std::optional<std::string> pair = decoded(rest);
    const std::size_t colon = pair ? pair->find(':') : std::string::npos;
    if (colon != std::string::npos) {
      return pair->substr(colon + 1);
    }
  }
  return {};
}

}  // namespace

ApiKeys::ApiKeys(std::vector<Key> keys) : keys_(std::move(keys)) {
  HEDDLE_CHECK(
      std::none_of(keys_.begin(), keys_.end(), [](const Key& key) { return key.text.empty(); }));
}

std::optional<Principal> ApiKeys::admit(const Credentials& shown) const {
  if (keys_.empty()) {
    return Principal{.role = config::Role::kAdmin};
  }
  const std::string text = shown_key(shown);
  std::optional<Principal> principal;
  for (const Key& key : keys_) {
    // Every key is compared, so that time does not tell which one was near.
    const bool equal = equal_in_constant_time(text, key.text);
    principal = equal ? std::optional(key.principal) : principal;
  }
  return principal;
}

}  // namespace heddle::gateway
