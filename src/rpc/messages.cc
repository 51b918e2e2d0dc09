#include "rpc/messages.h"

#include "base/wire.h"
#include "rpc/link_fields.h"

namespace heddle::rpc {

std::string encode(const ToWorker& message) {
  return wire::encode(message);
}

std::string encode(const ToServe& message) {
  return wire::encode(message);
}

std::string encode(const ToStage& message) {
  return wire::encode(message);
}

Result<ToStage> decode_to_stage(std::string_view bytes) {
  return wire::decode<ToStage>(bytes);
}

Result<ToWorker> decode_to_worker(std::string_view bytes) {
  return wire::decode<ToWorker>(bytes);
}

Result<ToServe> decode_to_serve(std::string_view bytes) {
  return wire::decode<ToServe>(bytes);
}

}  // namespace heddle::rpc
