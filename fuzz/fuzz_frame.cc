// What a worker, serve and the other workers of a group or pipeline read from each other: frames
// cut anywhere, and the messages in them. Whatever is accepted can be said again and is then
// understood in the same way.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/codec.h"
#include "rpc/frame.h"
#include "rpc/messages.h"

namespace {

constexpr std::size_t kPayloadMax = std::size_t{1} << 16U;

void read_messages(std::string_view bytes) {
  if (const auto message = heddle::rpc::decode_to_worker(bytes)) {
    const std::string again = heddle::rpc::encode(*message);
    const auto same = heddle::rpc::decode_to_worker(again);
    HEDDLE_CHECK(same && heddle::rpc::encode(*same) == again);
  }
  if (const auto message = heddle::rpc::decode_to_serve(bytes)) {
    const std::string again = heddle::rpc::encode(*message);
    const auto same = heddle::rpc::decode_to_serve(again);
    HEDDLE_CHECK(same && heddle::rpc::encode(*same) == again);
  }
  if (const auto message = heddle::rpc::decode_to_stage(bytes)) {
    const std::string again = heddle::rpc::encode(*message);
    const auto same = heddle::rpc::decode_to_stage(again);
    HEDDLE_CHECK(same && heddle::rpc::encode(*same) == again);
  }
  if (const auto command = heddle::core::decode_worker_command(bytes)) {
    const std::string again = heddle::core::encode(*command);
    const auto same = heddle::core::decode_worker_command(again);
    HEDDLE_CHECK(same && heddle::core::encode(*same) == again);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_messages({reinterpret_cast<const char*>(data), size});

  heddle::rpc::FrameDecoder decoder(kPayloadMax);
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size));
  while (!rest.empty()) {
    // The first byte of each piece says how long it is, so that cuts are part of the input.
    const std::size_t piece = 1 + std::to_integer<std::size_t>(rest[0]) % 64;
    const auto bytes = rest.subspan(0, piece < rest.size() ? piece : rest.size());
    decoder.add(bytes);
    rest = rest.subspan(bytes.size());
    for (;;) {
      const auto frame = decoder.next();
      if (!frame) {
        return 0;
      }
      if (!frame->has_value()) {
        break;
      }
      HEDDLE_CHECK((**frame).payload.size() <= kPayloadMax);
      read_messages((**frame).payload);
    }
  }
  return 0;
}
