#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "fetch/http_get.h"
#include "fetch/object.h"

namespace heddle::fetch {

/// Takes bytes of an object that stand at `offset`.
using Sink = std::function<Result<void>(std::uint64_t offset, std::span<const std::byte> bytes)>;

/// The message of a kFailedPrecondition that says so.
inline constexpr std::string_view kIgnoresRanges = "the server ignores ranges";

/// When what failed is tried again.
struct RetryOptions {
  int tries = 8;  ///< In a row without a byte that came.
  Duration first = std::chrono::milliseconds(500);
  Duration most = std::chrono::seconds(30);
  /// The longest that a server may ask to be left alone.
  Duration asked_most = std::chrono::minutes(5);
  /// Hears what failed before it is tried again, and how long that waits. May be empty.
  std::function<void(const std::string& why, Duration wait)> on_wait{};
};

/// Whether an answer with this status may be another one later.
[[nodiscard]] bool may_pass(int status);

/// Calls `attempt`, which fails with kUnavailable where another try is worth it, until it succeeds
/// or has failed `tries` times in a row. `attempt` is given where to put how long the server wants
/// to be left alone, and returns; where it sets `moved`, the count begins anew. Waits grow from
/// `first` to `most`, of which the upper half is drawn by chance. kCancelled after a stop.
struct Attempt {
  Duration asked{};
  bool moved = false;
};
[[nodiscard]] Result<void> keep_trying(const RetryOptions& options,
                                       const std::stop_token& stop,
                                       const std::function<Result<void>(Attempt&)>& attempt);

/// What one asks for an object.
struct RangedRead {
  const Object& object;
  Range range{};
  /// Makes the request, ranges aside: anew for each try, as signatures have a time.
  std::function<GetRequest()> request{};
  /// What to say of a status that is no success.
  std::function<Error(const GetReply&)> explain{};
};

/// Passes the range to `sink`, in order, each byte once, over as many requests as it takes; as
/// Source::read() fails. Where a server ignores ranges, the whole object is read in one stream, and
/// what had come already is passed over.
[[nodiscard]] Result<void> read_range(HttpGet& http,
                                      const RangedRead& read,
                                      const RetryOptions& retry,
                                      const Sink& sink,
                                      const std::stop_token& stop);

/// Reads "bytes 0-99/1000" or "bytes */1000" of a header Content-Range.
struct ContentRange {
  Range range{};
  std::uint64_t whole = 0;
};
[[nodiscard]] std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace heddle::fetch
