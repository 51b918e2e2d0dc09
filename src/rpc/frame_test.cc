#include "rpc/frame.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"

#include <fcntl.h>

namespace heddle::rpc {
namespace {

constexpr std::size_t kMax = 1 << 20;

std::string encode(const std::string& payload, std::size_t descriptors = 0) {
  const auto header = encode_frame_header(payload.size(), descriptors);
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + payload;
}

void add(FrameDecoder& decoder, std::string_view bytes) {
  decoder.add(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

Error refusal(const std::string& bytes) {
  FrameDecoder decoder(kMax);
  add(decoder, bytes);
  const Result<std::optional<Frame>> frame = decoder.next();
  EXPECT_FALSE(frame);
  return frame ? Error{} : frame.error();
}

TEST(Frame, SurvivesBeingCutAnywhere) {
  const std::uint64_t seed = 0x5eed;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  std::vector<std::string> sent;
  std::string wire;
  for (int i = 0; i < 200; ++i) {
    sent.emplace_back(rng.below(3000), static_cast<char>('a' + i % 26));
    wire += encode(sent.back());
  }
  FrameDecoder decoder(kMax);
  std::vector<std::string> received;
  for (std::size_t at = 0; at < wire.size();) {
    const std::size_t bytes = std::min<std::size_t>(wire.size() - at, 1 + rng.below(2000));
    add(decoder, std::string_view(wire).substr(at, bytes));
    at += bytes;
    for (;;) {
      Result<std::optional<Frame>> frame = decoder.next();
      ASSERT_TRUE(frame);
      if (!frame->has_value()) {
        break;
      }
      received.push_back((**frame).payload);
    }
  }
  EXPECT_EQ(received, sent);
}

TEST(Frame, RefusesAnotherVersion) {
  std::string wire = encode("x");
  wire[4] = 99;
  const Error error = refusal(wire);
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_EQ(error.message, "frame of protocol version 99; this process speaks version 2");
}

TEST(Frame, RefusesALengthOverTheLimitBeforeThePayloadComes) {
  const std::string wire = encode(std::string(kMax + 1, 'x')).substr(0, kFrameHeaderBytes);
  EXPECT_EQ(refusal(wire).message, "frame of 1048577 bytes; the limit is 1048576");
}

TEST(Frame, RefusesReservedBytesAndTooManyDescriptors) {
  std::string reserved = encode("x");
  reserved[7] = 1;
  EXPECT_EQ(refusal(reserved).code, Code::kCorrupt);
  std::string greedy = encode("x");
  greedy[5] = 9;
  EXPECT_EQ(refusal(greedy).message, "frame with 9 descriptors; the limit is 8");
}

TEST(Frame, DescriptorsBelongToTheFrameThatAnnouncesThem) {
  FrameDecoder decoder(kMax);
  add(decoder, encode("without"));
  decoder.add(Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  add(decoder, encode("with", 1));
  Result<std::optional<Frame>> first = decoder.next();
  ASSERT_TRUE(first && first->has_value());
  EXPECT_TRUE((**first).descriptors.empty());
  Result<std::optional<Frame>> second = decoder.next();
  ASSERT_TRUE(second && second->has_value());
  ASSERT_EQ((**second).descriptors.size(), 1U);
  EXPECT_GE(::fcntl((**second).descriptors[0].get(), F_GETFD), 0);
  EXPECT_EQ(refusal(encode("announces what never came", 2)).code, Code::kCorrupt);
}

}  // namespace
}  // namespace heddle::rpc
