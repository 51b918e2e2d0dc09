#include "gateway/usage_sniffer.h"

#include <algorithm>
#include <charconv>

namespace heddle::gateway {

namespace {

constexpr std::string_view kKey = "\"usage\"";
constexpr std::size_t kObjectMax = 2048;  ///< A longer one is none.
constexpr std::string_view kSpace = " \t\r\n";

/// Where the key begins; npos where it does not occur. Quotes are everywhere in JSON, the letter is
/// not.
std::size_t find_key(std::string_view text) {
  const std::string_view tail = kKey.substr(1);
  std::size_t at = text.find(tail);
  while (at != std::string_view::npos && (at == 0 || text[at - 1] != kKey.front())) {
    at = text.find(tail, at + 1);
  }
  return at == std::string_view::npos ? at : at - 1;
}

/// Where the object that begins at `begin` ends; npos while that has not come. Strings in it have
/// no brackets.
std::size_t object_end(std::string_view text, std::size_t begin) {
  int depth = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
    if (depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

/// The whole number that is the value of `key` in the text of an object.
void read_number(std::string_view object, std::string_view key, std::optional<std::int64_t>& into) {
  const std::string quoted = '"' + std::string(key) + '"';
  std::size_t at = object.find(quoted);
  if (at == std::string_view::npos) {
    return;
  }
  at = object.find_first_not_of(kSpace, at + quoted.size());
  if (at == std::string_view::npos || object[at] != ':') {
    return;
  }
  at = std::min(object.find_first_not_of(kSpace, at + 1), object.size());
  std::int64_t number = 0;
  const auto [end, failure] =
      std::from_chars(object.data() + at, object.data() + object.size(), number);
  if (failure == std::errc() && number >= 0) {
    into = number;
  }
}

/// Whether the key can occur in what follows on `open`, which is a few bytes: it seldom does, and
/// then nothing has to be copied.
bool may_have_key(std::string_view open, std::string_view bytes) {
  std::string seam(open.substr(open.size() - std::min(open.size(), kKey.size())));
  seam += bytes.substr(0, kKey.size());
  return open.size() > kKey.size() || find_key(seam) != std::string_view::npos ||
         find_key(bytes) != std::string_view::npos;
}

}  // namespace

void UsageSniffer::see_end(std::string_view bytes) {
  constexpr std::size_t kEnd = 1024;
  open_ += bytes.substr(bytes.size() - std::min(bytes.size(), kEnd));
  open_.erase(0, open_.size() - std::min(open_.size(), kEnd));
  read_number(open_, "prompt_eval_count", prompt_);
  read_number(open_, "eval_count", completion_);
}

void UsageSniffer::see(std::string_view bytes) {
  if (ollama_) {
    see_end(bytes);
    return;
  }
  if (open_.empty() && bytes.find('"') == std::string_view::npos) {
    return;
  }
  if (bytes.size() >= kKey.size() && !may_have_key(open_, bytes)) {
    open_ = bytes.substr(bytes.size() - kKey.size());
    return;
  }
  open_ += bytes;
  for (;;) {
    const std::size_t key = find_key(open_);
    if (key == std::string::npos) {
      // Of a key whose rest may follow, the last bytes; and the one that may escape it.
      open_.erase(0, open_.size() - std::min(open_.size(), kKey.size()));
      return;
    }
    const bool escaped = key > 0 && open_[key - 1] == '\\';
    const std::size_t colon = open_.find_first_not_of(kSpace, key + kKey.size());
    const std::size_t value =
        colon == std::string::npos ? colon : open_.find_first_not_of(kSpace, colon + 1);
    const bool whole = value != std::string::npos;
    if (!escaped && !whole && open_.size() - key < kObjectMax) {
      open_.erase(0, key);
      return;
    }
    if (escaped || !whole || open_[colon] != ':' || open_[value] != '{') {
      open_.erase(0, key + kKey.size());
      continue;
    }
    const std::size_t end = object_end(open_, value);
    if (end == std::string::npos && open_.size() - value < kObjectMax) {
      open_.erase(0, key);
      return;
    }
    if (end != std::string::npos) {
      const std::string_view object = std::string_view(open_).substr(value, end - value);
      read_number(object, "prompt_tokens", prompt_);
      read_number(object, "input_tokens", prompt_);
      read_number(object, "completion_tokens", completion_);
      read_number(object, "output_tokens", completion_);
      read_number(object, "cached_tokens", cached_);
      read_number(object, "cache_read_input_tokens", cached_);
    }
    open_.erase(0, end == std::string::npos ? key + kKey.size() : end);
  }
}

}  // namespace heddle::gateway
