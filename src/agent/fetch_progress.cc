#include "agent/fetch_progress.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace heddle::agent {
namespace {

/// The rate is told from what came in so long, and nothing came where that has passed twice.
constexpr Duration kWindow = std::chrono::milliseconds(500);

}  // namespace

FetchProgress::FetchProgress(std::string model, std::string from, std::string kind)
    : model_(std::move(model)), from_(std::move(from)), kind_(std::move(kind)) {}

void FetchProgress::took(std::uint64_t bytes, Instant now) {
  const std::lock_guard lock(mutex_);
  fetched_bytes_ += bytes;
  if (window_began_ == Instant{}) {
    window_began_ = now;
  }
  window_bytes_ += bytes;
  const Duration since = now - window_began_;
  if (since >= kWindow) {
    bytes_per_second_ = static_cast<double>(window_bytes_) / to_seconds(since);
    window_began_ = now;
    window_bytes_ = 0;
  }
}

void FetchProgress::gave(const std::string& host, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  given_[host] += bytes;
}

core::FetchStatus FetchProgress::status(Instant now) const {
  const std::lock_guard lock(mutex_);
  const bool stands = now - window_began_ > 4 * kWindow;
  std::uint64_t given = 0;
  std::string from;
  for (const auto& [host, bytes] : given_) {
    given += bytes;
    from += (from.empty() ? "" : " and ") + host;
  }
  if (fetched_bytes_ > given || from.empty()) {  // What was given has not been counted yet.
    from += (from.empty() ? "" : " and ") + from_;
  }
  return {.model = model_,
          .from = from,
          .kind = kind_,
          .active = true,
          .bytes = std::accumulate(there_.begin(), there_.end(), std::uint64_t{0}),
          .total_bytes = total_bytes_,
          .bytes_per_second = stands ? 0 : bytes_per_second_,
          .fetched_bytes = fetched_bytes_,
          .peer_bytes = std::min(given, fetched_bytes_)};
}

void FetchProgress::waits() {
  log::info("another process fetches the model; its end is awaited",
            {{"model", model_}, {"from", from_}});
}

void FetchProgress::removed(const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    log::info("removed from the cache, to make room", {{"removed", model}, {"model", model_}});
  }
}

void FetchProgress::begins(std::span<const fetch::Job> files,
                           std::span<const fetch::Object> /*left_out*/) {
  std::uint64_t bytes = 0;
  for (const fetch::Job& file : files) {
    bytes += file.object.bytes;
  }
  {
    const std::lock_guard lock(mutex_);
    there_.assign(files.size(), 0);
    total_bytes_ = bytes;
  }
  log::info("fetch",
            {{"model", model_}, {"from", from_}, {"files", files.size()}, {"bytes", bytes}});
}

void FetchProgress::moved(std::size_t file, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  there_.at(file) = bytes;
}

void FetchProgress::retries(const std::string& why, Duration wait) {
  log::warning("a request is made again",
               {{"model", model_}, {"from", from_}, {"why", why}, {"in", format_duration(wait)}});
}

void FetchProgress::streams() {
  log::warning("the source ignores ranges: files are read from their first byte on",
               {{"model", model_}, {"from", from_}});
}

void FetchProgress::peer_failed(const std::string& why) {
  log::warning("a part of a model comes from elsewhere", {{"model", model_}, {"why", why}});
}

}  // namespace heddle::agent
