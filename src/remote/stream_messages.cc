#include "remote/stream_messages.h"

#include <algorithm>

#include "base/wire.h"
#include "remote/stream_fields.h"

namespace heddle::remote {

namespace {

constexpr std::size_t kHeadTextMost = 1024;

}  // namespace

bool is_head_text(std::string_view text) {
  return text.size() <= kHeadTextMost && std::ranges::all_of(text, [](char letter) {
           const auto byte = static_cast<unsigned char>(letter);
           return byte > 0x20 && byte != 0x7f;
         });
}

std::string encode(const ToEngines& message) {
  return wire::encode(message);
}
std::string encode(const FromEngines& message) {
  return wire::encode(message);
}

Result<ToEngines> decode_to_engines(std::string_view bytes) {
  return wire::decode<ToEngines>(bytes);
}
Result<FromEngines> decode_from_engines(std::string_view bytes) {
  return wire::decode<FromEngines>(bytes);
}

}  // namespace heddle::remote
