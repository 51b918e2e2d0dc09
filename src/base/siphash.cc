#include "base/siphash.h"

#include <bit>
#include <cstring>

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little);

struct State {
  std::uint64_t v0;
  std::uint64_t v1;
  std::uint64_t v2;
  std::uint64_t v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void compress(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  [[nodiscard]] std::uint64_t folded() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

Digest siphash(const SipKey& key, std::span<const std::byte> bytes) {
  State state{.v0 = 0x736f6d6570736575U ^ key[0],
              .v1 = 0x646f72616e646f6dU ^ key[1] ^ 0xeeU,
              .v2 = 0x6c7967656e657261U ^ key[0],
              .v3 = 0x7465646279746573U ^ key[1]};
  std::uint64_t last = static_cast<std::uint64_t>(bytes.size()) << 56U;
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    state.compress(word);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    last |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  state.compress(last);
  state.v2 ^= 0xeeU;
  state.rounds(4);
  const std::uint64_t low = state.folded();
  state.v1 ^= 0xddU;
  state.rounds(4);
  return {.low = low, .high = state.folded()};
}

}  // namespace heddle
