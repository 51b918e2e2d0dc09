#include "device/cpu/paced_copy.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace heddle::device {
namespace {

constexpr std::size_t kPieceBytesMin = std::size_t{4} << 10U;
constexpr std::size_t kPieceBytesMax = std::size_t{4} << 20U;
constexpr std::uint64_t kPiecesPerSecond = 200;
constexpr double kNanosPerSecond = 1e9;

}  // namespace

void Pacer::begin() {
  ready_ = std::max(ready_, std::chrono::steady_clock::now());
}

void Pacer::wait(std::size_t bytes) {
  if (bytes_per_second_ == 0) {
    return;
  }
  const double nanos =
      static_cast<double>(bytes) / static_cast<double>(bytes_per_second_) * kNanosPerSecond;
  ready_ += std::chrono::nanoseconds(static_cast<std::int64_t>(nanos));
  std::this_thread::sleep_until(ready_);
}

std::size_t Pacer::piece_bytes() const {
  if (bytes_per_second_ == 0) {
    return kPieceBytesMax;
  }
  return std::clamp<std::size_t>(
      bytes_per_second_ / kPiecesPerSecond, kPieceBytesMin, kPieceBytesMax);
}

Result<void> paced_copy(std::byte* target,
                        const std::byte* source,
                        std::size_t bytes,
                        Pacer& link,
                        const std::atomic<bool>& cancel) {
  link.begin();
  for (std::size_t done = 0; done < bytes;) {
    if (cancel.load(std::memory_order_relaxed)) {
      return Error{.code = Code::kCancelled,
                   .message = "copy cancelled after " + std::to_string(done) + " of " +
                              std::to_string(bytes) + " bytes"};
    }
    const std::size_t piece = std::min(link.piece_bytes(), bytes - done);
    std::memcpy(target + done, source + done, piece);
    link.wait(piece);
    done += piece;
  }
  return {};
}

}  // namespace heddle::device
