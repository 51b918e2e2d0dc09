#include "rpc/frame.h"

#include <limits>

namespace heddle::rpc {

namespace {

struct Header {
  std::uint32_t payload_bytes = 0;
  std::uint8_t version = 0;
  std::uint8_t descriptors = 0;
  std::uint16_t zero = 0;
};

Header parse_header(const char* bytes) {
  const auto at = [bytes](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  return {.payload_bytes = at(0) | at(1) << 8U | at(2) << 16U | at(3) << 24U,
          .version = static_cast<std::uint8_t>(at(4)),
          .descriptors = static_cast<std::uint8_t>(at(5)),
          .zero = static_cast<std::uint16_t>(at(6) | at(7) << 8U)};
}

Result<void> check_header(const Header& header, std::size_t payload_bytes_max) {
  if (header.version != kProtocolVersion) {
    return Error{Code::kCorrupt,
                 "frame of protocol version " + std::to_string(header.version) +
                     "; this process speaks version " + std::to_string(kProtocolVersion)};
  }
  if (header.zero != 0) {
    return Error{Code::kCorrupt, "frame header whose reserved bytes are not zero"};
  }
  if (header.payload_bytes > payload_bytes_max) {
    return Error{Code::kCorrupt,
                 "frame of " + std::to_string(header.payload_bytes) + " bytes; the limit is " +
                     std::to_string(payload_bytes_max)};
  }
  if (header.descriptors > kFrameDescriptorsMax) {
    return Error{Code::kCorrupt,
                 "frame with " + std::to_string(header.descriptors) +
                     " descriptors; the limit is " + std::to_string(kFrameDescriptorsMax)};
  }
  return {};
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode_frame_header(std::size_t payload_bytes,
                                                             std::size_t descriptors) {
  HEDDLE_CHECK(payload_bytes <= std::numeric_limits<std::uint32_t>::max());
  HEDDLE_CHECK(descriptors <= kFrameDescriptorsMax);
  const auto byte = [payload_bytes](unsigned shift) {
    return static_cast<std::byte>((payload_bytes >> shift) & 0xffU);
  };
  return {byte(0),
          byte(8),
          byte(16),
          byte(24),
          std::byte{kProtocolVersion},
          static_cast<std::byte>(descriptors),
          std::byte{0},
          std::byte{0}};
}

void FrameDecoder::add(std::span<const std::byte> bytes) {
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<std::optional<Frame>> FrameDecoder::next() {
  const std::size_t available = buffer_.size() - consumed_;
  if (available < kFrameHeaderBytes) {
    return std::optional<Frame>();
  }
  const Header header = parse_header(buffer_.data() + consumed_);
  if (const Result<void> sane = check_header(header, payload_bytes_max_); !sane) {
    return sane.error();
  }
  if (descriptors_.size() > kFrameDescriptorsMax) {
    return Error{Code::kCorrupt, "more descriptors than a frame may have came with one"};
  }
  if (available - kFrameHeaderBytes < header.payload_bytes) {
    return std::optional<Frame>();
  }
  if (descriptors_.size() < header.descriptors) {
    return Error{Code::kCorrupt,
                 "frame that announces " + std::to_string(header.descriptors) +
                     " descriptors came with " + std::to_string(descriptors_.size())};
  }
  Frame frame;
  frame.payload = buffer_.substr(consumed_ + kFrameHeaderBytes, header.payload_bytes);
  for (std::size_t i = 0; i < header.descriptors; ++i) {
    frame.descriptors.push_back(std::move(descriptors_.front()));
    descriptors_.pop_front();
  }
  consumed_ += kFrameHeaderBytes + header.payload_bytes;
  return std::optional<Frame>(std::move(frame));
}

}  // namespace heddle::rpc
