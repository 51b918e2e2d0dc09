#include "fetch/fault.h"

#include <string_view>

#include <fmt/format.h>

#include "fetch/ranged_read.h"
#include "fetch/s3_listing.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

/// What the server says beside its status, in brackets; or nothing.
std::string in_brackets(const GetReply& reply) {
  const std::string code =
      reply.error_code.empty() ? s3_error_code(reply.problem) : reply.error_code;
  return code.empty() ? std::string() : fmt::format(" ({})", code.substr(0, 100));
}

std::string denied_advice(const GetReply& reply, const Asked& asked) {
  switch (asked.kind) {
    case SourceKind::kHub:
      return asked.with_credentials
                 ? "it is gated or private, and the token does not open it: accept the model's "
                   "conditions on its page, or set HF_TOKEN to one that may read it"
                 : "it is gated or private, or there is no such model: check the name, or set "
                   "HF_TOKEN";
    case SourceKind::kS3:
      return asked.with_credentials
                 ? "these credentials do not open it: check AWS_ACCESS_KEY_ID, "
                   "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the machine's clock"
                 : "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    case SourceKind::kHttp:
    case SourceKind::kFile:
      break;
  }
  return reply.status == 401 ? "put a login for this host into ~/.netrc"
                             : "the server does not let it be read";
}

std::string_view missing_advice(SourceKind kind) {
  switch (kind) {
    case SourceKind::kHub:
      return "there is no such model or revision; check the name";
    case SourceKind::kS3:
      return "there is no such bucket or object; check the name and AWS_ENDPOINT_URL";
    case SourceKind::kHttp:
    case SourceKind::kFile:
      break;
  }
  return "there is no such file; check the URL";
}

}  // namespace

Error fault_of(const GetReply& reply, const Asked& asked) {
  const std::string said = fmt::format("{}: {} answered {}{}",
                                       shown(asked.model),
                                       shown(reply.url),
                                       reply.status,
                                       in_brackets(reply));
  if (asked.kind == SourceKind::kS3 && !reply.region.empty() &&
      (reply.status / 100 == 3 || reply.status == 400)) {
    return {Code::kFailedPrecondition,
            fmt::format("{}: the bucket is in {}; set AWS_REGION={}",
                        said,
                        reply.region.substr(0, 64),
                        reply.region.substr(0, 64))};
  }
  if (may_pass(reply.status)) {
    return {Code::kUnavailable, said};
  }
  switch (reply.status) {
    case 401:
    case 403:
      return {Code::kFailedPrecondition, fmt::format("{}: {}", said, denied_advice(reply, asked))};
    case 404:
    case 410:
      return {Code::kNotFound, fmt::format("{}: {}", said, missing_advice(asked.kind))};
    default:
      return {Code::kFailedPrecondition, said};
  }
}

}  // namespace heddle::fetch
