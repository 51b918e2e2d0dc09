#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle {

/// The secret of a keyed hash.
using SipKey = std::array<std::uint64_t, 2>;

/// What stands for a content: 128 bits.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend auto operator<=>(const Digest&, const Digest&) = default;
};

/// SipHash-2-4 with 128 bits of result (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast
/// short-input PRF", INDOCRYPT 2012; the 128-bit variant is the reference implementation's).
/// Whoever does not know `key` can neither tell results from random ones nor look for two contents
/// with the same one; among n contents, chance makes two alike with a probability of about n^2 /
/// 2^129.
[[nodiscard]] Digest siphash(const SipKey& key, std::span<const std::byte> bytes);

}  // namespace heddle
