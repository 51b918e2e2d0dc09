#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "rpc/descriptor.h"

namespace heddle::rpc {

/// Raised when a peer of the version before could misread a frame or a message in it. It stands in
/// every frame, so that two versions notice each other before they exchange anything.
inline constexpr std::uint8_t kProtocolVersion = 2;
inline constexpr std::size_t kFrameHeaderBytes = 8;
/// Most descriptors that one frame may carry.
inline constexpr std::size_t kFrameDescriptorsMax = 8;

/// One message on its way: opaque bytes, and descriptors that go beside them on Unix sockets.
struct Frame {
  std::string payload{};
  std::vector<Descriptor> descriptors{};
};

/// The bytes before a payload: its length (32 bits), kProtocolVersion (8), how many descriptors
/// belong to it (8), zero (16); little endian.
[[nodiscard]] std::array<std::byte, kFrameHeaderBytes> encode_frame_header(
    std::size_t payload_bytes, std::size_t descriptors);

/// Cuts what arrives from a socket back into frames. Holds at most one payload of the largest
/// allowed size and what was received with it; trusts nothing. One thread.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t payload_bytes_max) : payload_bytes_max_(payload_bytes_max) {}

  /// Bytes, in the order received, cut anywhere.
  void add(std::span<const std::byte> bytes);
  /// A descriptor that arrived; before, or together with, the first byte of its frame.
  void add(Descriptor descriptor) { descriptors_.push_back(std::move(descriptor)); }

  /// The next complete frame; none while it is incomplete. kCorrupt for a peer that does not speak
  /// this protocol, after which the connection is of no more use.
  Result<std::optional<Frame>> next();

 private:
  std::size_t payload_bytes_max_;
  std::string buffer_{};
  std::size_t consumed_ = 0;  ///< Bytes at the front of buffer_ that are done with.
  std::deque<Descriptor> descriptors_{};
};

}  // namespace heddle::rpc
