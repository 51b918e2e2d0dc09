#include "remote/cache_messages.h"

#include "base/wire.h"
#include "remote/cache_fields.h"

namespace heddle::remote {

std::string encode(const ToCache& message) {
  return wire::encode(message);
}
std::string encode(const FromCache& message) {
  return wire::encode(message);
}

Result<ToCache> decode_to_cache(std::string_view bytes) {
  return wire::decode<ToCache>(bytes);
}
Result<FromCache> decode_from_cache(std::string_view bytes) {
  return wire::decode<FromCache>(bytes);
}

}  // namespace heddle::remote
