#pragma once

#include <csignal>
#include <cstdint>
#include <cstdio>
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
std::vector<std::uint64_t> seeds(std::uint64_t count);

}  // namespace heddle::twin::test
