#include "fetch/http_source.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "fetch/fault.h"
#include "fetch/url.h"
#include "fetch/wanted.h"
#include "store/safetensors.h"

namespace heddle::fetch {

HttpSource::HttpSource(const SourceName& name, const SourceOptions& options)
    : WebSource(options), name_(name) {}

GetRequest HttpSource::request_for(const std::string& url) const {
  return {.url = url};
}

Error HttpSource::explain(const GetReply& reply) const {
  return fault_of(reply, {.kind = SourceKind::kHttp, .model = name_.text});
}

Result<std::optional<Object>> HttpSource::look_for(std::string_view name,
                                                   bool must,
                                                   const std::stop_token& stop) {
  Object object{.name = std::string(name), .url = name_.path + percent_encode(name, true)};
  bool there = false;
  const auto attempt = [&](Attempt& state) -> Result<void> {
    GetRequest request = request_for(object.url);
    request.headers.emplace_back("Range: bytes=0-0");
    const Body body = [](const GetReply& head, std::span<const std::byte>) -> Result<Next> {
      return head.status == 206 ? Next::kMore : Next::kEnough;
    };
    const Result<GetReply> reply = http().get(request, body, stop);
    if (!reply) {
      return reply.error();
    }
    const std::optional<ContentRange> range = parse_content_range(reply->content_range);
    const bool is_empty = reply->status == 416 && range && range->whole == 0;
    if (reply->status / 100 != 2 && !is_empty) {
      state.asked = reply->retry_after.value_or(Duration{});
      const bool missing = reply->status == 403 || reply->status == 404 || reply->status == 410;
      return missing && !must ? Result<void>() : explain(*reply);
    }
    const std::optional<std::uint64_t> bytes =
        range ? std::optional(range->whole) : reply->content_bytes;
    if (!bytes) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("{} does not say how long it is; want a header Content-Length",
                               shown(object.url))};
    }
    object.bytes = *bytes;
    object.validator = reply->etag.empty() ? reply->last_modified : reply->etag;
    there = true;
    return {};
  };
  if (const Result<void> done = keep_trying(listing_retry(), stop, attempt); !done) {
    return done.error();
  }
  return there ? std::optional(std::move(object)) : std::nullopt;
}

Result<void> HttpSource::list_weights(Listing& listing, const std::stop_token& stop) {
  Result<std::optional<Object>> single = look_for(kWeightsFile, false, stop);
  if (!single) {
    return single.error();
  }
  if (*single) {
    listing.objects.push_back(std::move(**single));
    return {};
  }
  Result<std::optional<Object>> index = look_for(kIndexFile, false, stop);
  if (!index || !*index) {
    return index ? Result<void>() : index.error();
  }
  const Result<HttpGet::Text> content = text((*index)->url, kIndexBytesMax, stop);
  if (!content) {
    return content.error();
  }
  const auto shards = store::parse_safetensors_index(content->body, shown((*index)->url));
  if (!shards) {
    return shards.error();
  }
  listing.objects.push_back(std::move(**index));
  std::set<std::string> names;
  for (const auto& [tensor, shard] : *shards) {
    names.insert(shard);
  }
  for (const std::string& name : names) {
    Result<std::optional<Object>> shard = look_for(name, true, stop);
    if (!shard) {
      return shard.error();
    }
    listing.objects.push_back(std::move(**shard));
  }
  return {};
}

Result<Listing> HttpSource::list(const std::stop_token& stop) {
  Listing listing;
  for (const std::string_view name : text_names()) {
    Result<std::optional<Object>> found = look_for(name, name == kConfigFile, stop);
    if (!found) {
      return found.error();
    }
    if (*found) {
      listing.objects.push_back(std::move(**found));
    }
  }
  if (const Result<void> weights = list_weights(listing, stop); !weights) {
    return weights.error();
  }
  return listing;
}

}  // namespace heddle::fetch
