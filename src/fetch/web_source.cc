#include "fetch/web_source.h"

#include <algorithm>
#include <utility>

namespace heddle::fetch {
namespace {

constexpr int kListingTries = 4;

}  // namespace

WebSource::WebSource(const SourceOptions& options)
    : http_(options.http), retry_(options.retry), listing_retry_(options.retry) {
  listing_retry_.tries = std::min(kListingTries, retry_.tries);
}

Result<void> WebSource::read(const Object& object,
                             Range range,
                             const Sink& sink,
                             const std::stop_token& stop) {
  return read_range(http_,
                    {.object = object,
                     .range = range,
                     .request = [&] { return request_for(object.url); },
                     .explain = [&](const GetReply& reply) { return explain(reply); }},
                    retry_,
                    sink,
                    stop);
}

Result<HttpGet::Text> WebSource::text(const std::string& url,
                                      std::uint64_t bytes_max,
                                      const std::stop_token& stop) {
  HttpGet::Text answer;
  const auto attempt = [&](Attempt& state) -> Result<void> {
    Result<HttpGet::Text> got = http_.get_text(request_for(url), bytes_max, stop);
    if (!got) {
      return got.error();
    }
    if (got->reply.status / 100 != 2) {
      state.asked = got->reply.retry_after.value_or(Duration{});
      return explain(got->reply);
    }
    answer = std::move(got).value();
    return {};
  };
  if (const Result<void> done = keep_trying(listing_retry_, stop, attempt); !done) {
    return done.error();
  }
  return answer;
}

}  // namespace heddle::fetch
