#include "fetch/s3_source.h"

#include <chrono>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fetch/fault.h"
#include "fetch/s3_listing.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

constexpr std::uint64_t kS3PageBytesMax = 16U << 20U;
constexpr int kS3PagesMax = 1000;

std::string first_of(const store::Environment& environment,
                     std::initializer_list<const char*> names,
                     std::string_view otherwise) {
  for (const char* name : names) {
    if (const std::optional<std::string> value = environment(name)) {
      return *value;
    }
  }
  return std::string(otherwise);
}

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::unique_ptr<Source>> S3Source::open(const SourceName& name,
                                               const store::Environment& environment,
                                               const SourceOptions& options) {
  std::unique_ptr<S3Source> source(new S3Source(name, options));
  source->region_ = first_of(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"}, "us-east-1");
  source->credentials_ = {.access_key = environment("AWS_ACCESS_KEY_ID").value_or(""),
                          .secret_key = environment("AWS_SECRET_ACCESS_KEY").value_or(""),
                          .session_token = environment("AWS_SESSION_TOKEN").value_or("")};
  if (source->credentials_.access_key.empty() != source->credentials_.secret_key.empty()) {
    return Error{Code::kInvalidArgument,
                 "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY one is set; want both or neither"};
  }
  std::string endpoint = first_of(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "");
  source->bucket_path_ = "/" + name.bucket;
  if (endpoint.empty()) {
    endpoint = fmt::format("https://s3.{}.amazonaws.com", source->region_);
    if (name.bucket.find_first_of("._") == std::string::npos) {  // Else no certificate has it.
      endpoint = fmt::format("https://{}.s3.{}.amazonaws.com", name.bucket, source->region_);
      source->bucket_path_.clear();
    }
  }
  const std::optional<UrlParts> parts = split_url(endpoint);
  if (!parts || parts->has_user || endpoint.find_first_of("?#") != std::string::npos) {
    return Error{Code::kInvalidArgument,
                 fmt::format("AWS_ENDPOINT_URL is \"{}\"; want a URL such as "
                             "https://minio.example:9000",
                             shown(endpoint))};
  }
  source->authority_ = parts->authority;
  source->origin_ = fmt::format("{}://{}", parts->scheme, parts->authority);
  if (parts->path != "/") {
    source->bucket_path_ =
        parts->path.substr(0, parts->path.find_last_not_of('/') + 1) + source->bucket_path_;
  }
  return std::unique_ptr<Source>(std::move(source));
}

GetRequest S3Source::request_for(const std::string& url) const {
  const std::size_t query = url.find('?');
  SignedRequest to_sign{.path = url.substr(origin_.size(), query - origin_.size())};
  if (query != std::string::npos) {
    to_sign.query = url.substr(query + 1);
  }
  return {.url = url,
          .secrets = signing_headers(
              to_sign, authority_, {.time_s = now_s(), .region = region_}, credentials_)};
}

Error S3Source::explain(const GetReply& reply) const {
  return fault_of(reply,
                  {.kind = SourceKind::kS3,
                   .model = name_.text,
                   .with_credentials = !credentials_.access_key.empty()});
}

Result<Listing> S3Source::list(const std::stop_token& stop) {
  Listing listing;
  std::string token;
  for (int pages = 0; pages < kS3PagesMax; ++pages) {
    std::vector<std::pair<std::string, std::string>> query{{"list-type", "2"},
                                                           {"prefix", name_.path}};
    if (!token.empty()) {
      query.emplace_back("continuation-token", token);
    }
    const std::string url = fmt::format(
        "{}{}?{}", origin_, bucket_path_.empty() ? "/" : bucket_path_, canonical_query(query));
    const Result<HttpGet::Text> answer = text(url, kS3PageBytesMax, stop);
    if (!answer) {
      return answer.error();
    }
    Result<S3Page> page = parse_s3_page(answer->body, name_.path, shown(name_.text));
    if (!page) {
      return page.error();
    }
    for (Object& object : page->objects) {
      object.url = fmt::format(
          "{}{}/{}", origin_, bucket_path_, percent_encode(name_.path + object.name, true));
      listing.objects.push_back(std::move(object));
    }
    token = page->next;
    if (token.empty()) {
      if (listing.objects.empty()) {
        return Error{Code::kNotFound,
                     fmt::format("{}: there is nothing below this prefix of the bucket {}",
                                 shown(name_.text),
                                 name_.bucket)};
      }
      return listing;
    }
  }
  return Error{Code::kCorrupt, fmt::format("{}: the list does not end", shown(name_.text))};
}

}  // namespace heddle::fetch
