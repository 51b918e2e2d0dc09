#pragma once

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

/// For tests: the seeds of random worlds.
namespace heddle::twin::test {

/// A check that fails from now on says that it was this seed.
inline void name_seed(std::uint64_t seed) {
  static std::uint64_t running = 0;
  running = seed;
  std::signal(SIGABRT, [](int) { std::fprintf(stderr, "seed %lu\n", running); });
}

/// What sanitizers look for shows in the first worlds if it shows at all, and each takes them ten
/// times as long.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr int kShare = 5;
#else
inline constexpr int kShare = 1;
#endif

/// Seeds [0, count), under sanitizers a fifth of them; or as many as HEDDLE_WORLDS says, or the one
/// that HEDDLE_SEED says. What is counted over all of them is a fifth there, too.
inline std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* only = std::getenv("HEDDLE_SEED")) {
    return {std::strtoull(only, nullptr, 10)};
  }
  const char* many = std::getenv("HEDDLE_WORLDS");
  std::vector<std::uint64_t> all(many != nullptr ? std::strtoull(many, nullptr, 10)
                                                 : count / kShare);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

}  // namespace heddle::twin::test
