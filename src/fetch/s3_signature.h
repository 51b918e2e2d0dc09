#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// AWS's Signature Version 4, as S3 wants it.
namespace heddle::fetch {

struct S3Credentials {
  std::string access_key{};  ///< Empty: requests are anonymous.
  std::string secret_key{};
  std::string session_token{};
};

/// What is signed of a request: method GET without a body unless said otherwise.
struct SignedRequest {
  std::string_view method = "GET";
  std::string path = "/";  ///< Percent-encoded once.
  std::string query{};     ///< As canonical_query() makes it.
  /// Names in small letters; `host` is among them. In any order.
  std::vector<std::pair<std::string, std::string>> headers{};
  /// SHA-256 of the body in hexadecimal; that of none unless said otherwise.
  std::string body_sha256{};
};

/// The moment of a signature and what it is for.
struct SignatureScope {
  std::int64_t time_s = 0;  ///< Seconds since 1970.
  std::string region{};
  std::string service = "s3";
};

/// The query as it stands in the URL and in what is signed: sorted, percent-encoded.
/// @param pairs  Names and values as they are.
[[nodiscard]] std::string canonical_query(
    const std::vector<std::pair<std::string, std::string>>& pairs);

/// The text that is hashed for what is signed.
[[nodiscard]] std::string canonical_request(const SignedRequest& request);

/// The value of the header Authorization. The headers of `request` are all that is signed.
[[nodiscard]] std::string authorization(const SignedRequest& request,
                                        const SignatureScope& scope,
                                        const S3Credentials& credentials);

/// "20130524T000000Z".
[[nodiscard]] std::string amz_date(std::int64_t time_s);

/// Lines of the headers that sign a GET of `host`: x-amz-date, x-amz-content-sha256, with a session
/// its token, and Authorization. None where the credentials are empty.
[[nodiscard]] std::vector<std::string> signing_headers(const SignedRequest& request,
                                                       std::string_view host,
                                                       const SignatureScope& scope,
                                                       const S3Credentials& credentials);

}  // namespace heddle::fetch
