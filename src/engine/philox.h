#pragma once

#include <array>
#include <cstdint>

namespace heddle::engine {

/// Philox4x32-10 (J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): four
/// random words as a pure function of a counter and a key, so that a draw can be made again
/// anywhere without replaying those before it.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The random number of the `position`-th generated token of a choice: uniform in [0, 1), 53 bits.
/// Key: the seed. Counter: position (two words, low first), choice, 0.
[[nodiscard]] constexpr double uniform_draw(std::uint64_t seed,
                                            std::uint32_t choice,
                                            std::uint64_t position) {
  const auto words =
      philox4x32({static_cast<std::uint32_t>(position),
                  static_cast<std::uint32_t>(position >> 32U),
                  choice,
                  0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32U) | words[0];
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

}  // namespace heddle::engine
