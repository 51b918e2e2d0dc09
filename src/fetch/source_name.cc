#include "fetch/source_name.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "fetch/url.h"
#include "store/model_source.h"

namespace heddle::fetch {
namespace {

Error wrong_name(std::string_view text, std::string_view why) {
  return {Code::kInvalidArgument,
          fmt::format("\"{}\" names no model: {}; want org/name, org/name@revision, "
                      "org/name:Q4_K_M, s3://bucket/prefix, https://host/folder/ or file:///folder",
                      shown(text),
                      why)};
}

bool is_bucket(std::string_view text) {
  return text.size() >= 3 && text.size() <= 63 && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

std::string with_slash(std::string_view text) {
  std::string_view rest = text;
  while (rest.ends_with('/')) {
    rest.remove_suffix(1);
  }
  return rest.empty() ? std::string() : std::string(rest) + "/";
}

Result<SourceName> parse_s3(std::string_view text, std::string_view rest) {
  const std::size_t slash = rest.find('/');
  SourceName name{.kind = SourceKind::kS3, .text = std::string(text)};
  name.bucket = rest.substr(0, slash);
  name.path = slash == std::string_view::npos ? "" : with_slash(rest.substr(slash + 1));
  if (!is_bucket(name.bucket)) {
    return wrong_name(text, fmt::format("\"{}\" is no bucket", name.bucket));
  }
  return name;
}

}  // namespace

std::string_view name(SourceKind kind) {
  switch (kind) {
    case SourceKind::kFile:
      return "file";
    case SourceKind::kHttp:
      return "http";
    case SourceKind::kS3:
      return "s3";
    case SourceKind::kHub:
      break;
  }
  return "hub";
}

Result<SourceName> parse_source_name(std::string_view text) {
  if (text.size() > 2048 || std::ranges::any_of(text, [](unsigned char c) { return c <= ' '; })) {
    return wrong_name(text.substr(0, 64), "it is too long, or has spaces");
  }
  if (text.starts_with("file://")) {
    const std::string_view path = text.substr(7);
    return path.starts_with('/') ? Result<SourceName>(SourceName{.kind = SourceKind::kFile,
                                                                 .text = std::string(text),
                                                                 .path = std::string(path)})
                                 : wrong_name(text, "a path begins with \"/\"");
  }
  if (text.starts_with("s3://")) {
    return parse_s3(text, text.substr(5));
  }
  if (text.starts_with("http://") || text.starts_with("https://")) {
    const std::optional<UrlParts> parts = split_url(text);
    if (!parts) {
      return wrong_name(text, "that is no URL");
    }
    if (parts->has_user) {
      return wrong_name(text, "credentials do not belong into a name, ~/.netrc is for them");
    }
    if (text.find_first_of("?#") != std::string_view::npos) {
      return wrong_name(text, "the URL of a folder has no query");
    }
    std::string url(text);
    url += text.ends_with('/') ? "" : "/";
    return SourceName{.kind = SourceKind::kHttp, .text = std::string(text), .path = std::move(url)};
  }
  const std::optional<store::HubName> hub = store::parse_hub_name(text);
  if (!hub) {
    return wrong_name(text, "it is none of these forms");
  }
  return SourceName{.kind = SourceKind::kHub,
                    .text = std::string(text),
                    .repo = hub->repository,
                    .revision = hub->revision,
                    .tag = hub->tag};
}

std::optional<SourceName> remote_source(std::string_view path,
                                        const store::Environment& environment) {
  Result<SourceName> name = parse_source_name(path);
  if (!name || name->kind == SourceKind::kFile) {
    return std::nullopt;
  }
  if (name->kind == SourceKind::kHub) {
    const std::string offline = environment("HF_HUB_OFFLINE").value_or("");
    const bool asked = offline.empty() || offline == "0";
    if (!asked || name->repo.find('/') == std::string::npos) {
      return std::nullopt;
    }
  }
  return std::move(name).value();
}

}  // namespace heddle::fetch
