#include "remote/edge_messages.h"

#include "base/wire.h"
#include "remote/edge_fields.h"

namespace heddle::remote {

std::string encode(const ToEdge& message) {
  return wire::encode(message);
}
std::string encode(const FromEdge& message) {
  return wire::encode(message);
}

Result<ToEdge> decode_to_edge(std::string_view bytes) {
  return wire::decode<ToEdge>(bytes);
}
Result<FromEdge> decode_from_edge(std::string_view bytes) {
  return wire::decode<FromEdge>(bytes);
}

}  // namespace heddle::remote
