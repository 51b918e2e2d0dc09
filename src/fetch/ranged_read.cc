#include "fetch/ranged_read.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "base/rng.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

bool is_strong(std::string_view validator) {
  return !validator.empty() && !validator.starts_with("W/");
}

bool sleep_for(Duration wait, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  (void)woken.wait_for(lock, stop, wait, [] { return false; });
  return !stop.stop_requested();
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
}

/// Reads one range over several answers.
class Reader {
 public:
  Reader(HttpGet& http, const RangedRead& read, const Sink& sink, const std::stop_token& stop)
      : http_(http), read_(read), sink_(sink), stop_(stop), next_(read.range.begin) {}

  Result<void> attempt(Attempt& attempt) {
    const std::uint64_t before = next_;
    Result<void> done = once(attempt);
    attempt.moved = next_ > before;
    return done;
  }

 private:
  [[nodiscard]] const Object& object() const { return read_.object; }
  [[nodiscard]] bool wants_all() const {
    return read_.range.begin == 0 && read_.range.end == object().bytes;
  }

  Result<void> once(Attempt& attempt) {
    GetRequest request = read_.request();
    if (next_ != 0 || read_.range.end != object().bytes) {
      request.headers.push_back(fmt::format("Range: bytes={}-{}", next_, read_.range.end - 1));
      if (is_strong(object().validator)) {
        request.headers.push_back("If-Range: " + object().validator);
      }
    }
    headed_ = false;
    const Body body = [this](const GetReply& head, std::span<const std::byte> part) {
      return take(head, part);
    };
    const Result<GetReply> reply = http_.get(request, body, stop_);
    if (!reply) {
      return reply.error();
    }
    if (reply->status / 100 != 2) {
      attempt.asked = reply->retry_after.value_or(Duration{});
      return read_.explain(*reply);
    }
    if (next_ < read_.range.end) {
      return Error{Code::kUnavailable,
                   fmt::format("{}: the answer ended early, at byte {} of {}",
                               shown(reply->url),
                               next_,
                               object().bytes)};
    }
    return {};
  }

  /// Checks an answer's head. Then `at_` is where its body begins.
  Result<void> take_head(const GetReply& head) {
    const std::string& known = object().validator;
    const std::string& told = head.etag.empty() ? head.last_modified : head.etag;
    if (!object().has_digest() && !known.empty() && !told.empty() && told != known) {
      return changed(fmt::format("its ETag was {} and is {}", known, told));
    }
    if (head.status == 206) {
      const std::optional<ContentRange> range = parse_content_range(head.content_range);
      if (!range || range->range.begin != next_) {
        return Error{Code::kCorrupt,
                     fmt::format("{}: asked for the bytes from {} on, the server sent \"{}\"",
                                 shown(object().url),
                                 next_,
                                 head.content_range)};
      }
      if (range->whole != object().bytes) {
        return changed(fmt::format("it had {} bytes and has {}", object().bytes, range->whole));
      }
      at_ = next_;
      return {};
    }
    if (!wants_all()) {
      return Error{Code::kFailedPrecondition, std::string(kIgnoresRanges)};
    }
    if (head.content_bytes && *head.content_bytes != object().bytes) {
      return changed(
          fmt::format("it had {} bytes and has {}", object().bytes, *head.content_bytes));
    }
    at_ = 0;
    return {};
  }

  [[nodiscard]] Error changed(std::string_view how) const {
    return {Code::kCorrupt,
            fmt::format(
                "{} changed while it was fetched: {}; fetch it again", shown(object().url), how)};
  }

  Result<Next> take(const GetReply& head, std::span<const std::byte> part) {
    if (!headed_) {
      headed_ = true;
      if (const Result<void> right = take_head(head); !right) {
        return right.error();
      }
    }
    const std::uint64_t skipped =
        std::min<std::uint64_t>(part.size(), next_ - std::min(at_, next_));
    at_ += skipped;
    part = part.subspan(skipped);
    const bool excess = part.size() > read_.range.end - next_;
    part = part.first(std::min<std::uint64_t>(part.size(), read_.range.end - next_));
    if (!part.empty()) {
      if (const Result<void> kept = sink_(next_, part); !kept) {
        return kept.error();
      }
      next_ += part.size();
      at_ += part.size();
    }
    // Ending at the last byte that is wanted would cost the connection.
    return excess ? Next::kEnough : Next::kMore;
  }

  HttpGet& http_;
  const RangedRead& read_;
  const Sink& sink_;
  const std::stop_token& stop_;
  std::uint64_t next_;    ///< All before has been passed on.
  std::uint64_t at_ = 0;  ///< What the answer's next byte is of the object.
  bool headed_ = false;
};

}  // namespace

bool may_pass(int status) {
  constexpr std::array kLater{408, 425, 429, 500, 502, 503, 504};
  return std::ranges::find(kLater, status) != kLater.end();
}

Result<void> keep_trying(const RetryOptions& options,
                         const std::stop_token& stop,
                         const std::function<Result<void>(Attempt&)>& attempt) {
  Rng rng(std::random_device{}());
  int failed = 0;
  Duration longest = options.first;
  while (true) {
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    Attempt state;
    Result<void> done = attempt(state);
    if (done || done.error().code != Code::kUnavailable) {
      return done;
    }
    if (state.moved) {
      failed = 0;
      longest = options.first;
    } else {
      ++failed;
    }
    if (failed >= options.tries || state.asked > options.asked_most) {
      return Error{Code::kUnavailable,
                   fmt::format("{} (tried {} times)", done.error().message, failed)};
    }
    const auto half = static_cast<std::uint64_t>(longest.count() / 2);
    const Duration drawn(static_cast<Duration::rep>(half + rng.below(half + 1)));
    const Duration wait = std::max(drawn, state.asked);
    longest = std::min(longest * 2, options.most);
    if (options.on_wait) {
      options.on_wait(done.error().message, wait);
    }
    if (!sleep_for(wait, stop)) {
      return Error{Code::kCancelled, "stopped"};
    }
  }
}

Result<void> read_range(HttpGet& http,
                        const RangedRead& read,
                        const RetryOptions& retry,
                        const Sink& sink,
                        const std::stop_token& stop) {
  if (read.range.bytes() == 0) {
    return {};
  }
  Reader reader(http, read, sink, stop);
  return keep_trying(retry, stop, [&](Attempt& attempt) { return reader.attempt(attempt); });
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const std::size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || slash == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view span = text.substr(kUnit.size(), slash - kUnit.size());
  const auto whole = number(text.substr(slash + 1));
  if (!whole) {
    return std::nullopt;
  }
  if (span == "*") {
    return ContentRange{.range = {}, .whole = *whole};
  }
  const std::size_t dash = span.find('-');
  const auto first = number(span.substr(0, dash));
  const auto last = dash == std::string_view::npos ? std::nullopt : number(span.substr(dash + 1));
  if (!first || !last || *last < *first || *last >= *whole) {
    return std::nullopt;
  }
  return ContentRange{.range = {*first, *last + 1}, .whole = *whole};
}

}  // namespace heddle::fetch
