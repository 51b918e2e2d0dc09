#pragma once

#include <atomic>
#include <cstdint>

#include "ops/context.h"

namespace heddle::ops {

struct WaitArgs {
  /// Only grows. Set by any thread, which then calls notify_all() on it.
  const std::atomic<std::uint64_t>* watermark = nullptr;
  std::uint64_t value = 0;
};

/// What a watermark is set to when it will never get further.
constexpr std::uint64_t kAbandoned = UINT64_MAX;

/// Holds the stream until *watermark >= value: work enqueued later runs after that, and sees what
/// the setter wrote before. If the watermark is kAbandoned, that work does not run, and
/// synchronize() reports kCancelled. On CUDA the call itself returns only then: what was enqueued
/// before runs meanwhile, and nothing is recorded where the stream records.
void wait(OpContext& context, const WaitArgs& args);

}  // namespace heddle::ops
