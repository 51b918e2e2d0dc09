#include "fetch/hub_source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "fetch/fault.h"
#include "fetch/hub_listing.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

constexpr std::string_view kEndpoint = "https://huggingface.co";
constexpr std::uint64_t kPageBytesMax = 64U << 20U;
constexpr std::uint64_t kTokenBytesMax = 4096;
constexpr int kPagesMax = 1000;

std::string endpoint_from(const store::Environment& environment) {
  std::string endpoint = environment("HF_ENDPOINT").value_or(std::string(kEndpoint));
  while (endpoint.ends_with('/')) {
    endpoint.pop_back();
  }
  return endpoint;
}

std::string token_from(const store::Environment& environment) {
  std::string token = environment("HF_TOKEN").value_or("");
  if (token.empty()) {
    namespace fs = std::filesystem;
    const std::string home = environment("HOME").value_or("");
    const fs::path cache = environment("XDG_CACHE_HOME").value_or(home + "/.cache");
    const fs::path hub = environment("HF_HOME").value_or((cache / "huggingface").string());
    const fs::path path = environment("HF_TOKEN_PATH").value_or((hub / "token").string());
    const Result<std::string> text = read_text(path, kTokenBytesMax);
    token = text ? *text : "";
  }
  std::erase_if(token, [](unsigned char c) { return std::isspace(c) != 0; });
  return token;
}

}  // namespace

HubSource::HubSource(const SourceName& name,
                     const store::Environment& environment,
                     const SourceOptions& options)
    : WebSource(options),
      name_(name),
      endpoint_(endpoint_from(environment)),
      token_(token_from(environment)) {}

GetRequest HubSource::request_for(const std::string& url) const {
  GetRequest request{.url = url};
  if (!token_.empty()) {
    request.secrets.push_back("Authorization: Bearer " + token_);
  }
  return request;
}

Error HubSource::explain(const GetReply& reply) const {
  return fault_of(
      reply, {.kind = SourceKind::kHub, .model = name_.text, .with_credentials = !token_.empty()});
}

Result<Listing> HubSource::list(const std::stop_token& stop) {
  const std::string api = fmt::format("{}/api/models/{}", endpoint_, name_.repo);
  const std::string about =
      fmt::format("{}/revision/{}", api, percent_encode(name_.revision, false));
  const Result<HttpGet::Text> told = text(about, kPageBytesMax, stop);
  if (!told) {
    return told.error();
  }
  const Result<std::string> commit = parse_hub_revision(told->body, shown(about));
  if (!commit) {
    return commit.error();
  }
  Listing listing{.revision = *commit};
  std::string page = fmt::format("{}/tree/{}?recursive=1", api, *commit);
  for (int pages = 0; !page.empty(); ++pages) {
    const Result<HttpGet::Text> tree = text(page, kPageBytesMax, stop);
    if (!tree) {
      return tree.error();
    }
    Result<std::vector<Object>> objects = parse_hub_tree(tree->body, shown(page));
    if (!objects) {
      return objects.error();
    }
    std::ranges::move(*objects, std::back_inserter(listing.objects));
    const std::string next = next_page(tree->reply.link);
    // Only the hub itself gets the token, so it alone may say what comes next.
    if ((!next.empty() && !next.starts_with(endpoint_ + "/")) || pages > kPagesMax) {
      return Error{
          Code::kCorrupt,
          fmt::format("{}: its list of files goes on elsewhere, at {}", shown(page), shown(next))};
    }
    page = next;
  }
  for (Object& object : listing.objects) {
    object.url = fmt::format(
        "{}/{}/resolve/{}/{}", endpoint_, name_.repo, *commit, percent_encode(object.name, true));
  }
  return listing;
}

}  // namespace heddle::fetch
