#include "fetch/s3_signature.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <span>

#include <fmt/format.h>

#include "base/check.h"
#include "fetch/digest.h"
#include "fetch/url.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace heddle::fetch {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  HEDDLE_CHECK(::HMAC(EVP_sha256(),
                      key.data(),
                      static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()),
                      text.size(),
                      bytes.data(),
                      &size) != nullptr);
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

/// Values lose what surrounds them, and runs of spaces become one.
std::string folded(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' || (!text.empty() && text.back() != ' ')) {
      text += c;
    }
  }
  if (text.ends_with(' ')) {
    text.pop_back();
  }
  return text;
}

std::map<std::string, std::string> sorted_headers(const SignedRequest& request) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : request.headers) {
    std::string& held = sorted[name];
    held += (held.empty() ? "" : ",") + folded(value);
  }
  return sorted;
}

std::string header_names(const SignedRequest& request) {
  std::string names;
  for (const auto& [name, value] : sorted_headers(request)) {
    names += (names.empty() ? "" : ";") + name;
  }
  return names;
}

std::string scope_text(const SignatureScope& scope) {
  return fmt::format(
      "{}/{}/{}/aws4_request", amz_date(scope.time_s).substr(0, 8), scope.region, scope.service);
}

}  // namespace

std::string amz_date(std::int64_t time_s) {
  const std::time_t time = time_s;
  std::tm parts{};
  (void)::gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return {text.data(), size};
}

std::string canonical_query(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::pair<std::string, std::string>> encoded;
  encoded.reserve(pairs.size());
  for (const auto& [name, value] : pairs) {
    encoded.emplace_back(percent_encode(name, false), percent_encode(value, false));
  }
  std::ranges::sort(encoded);
  std::string text;
  for (const auto& [name, value] : encoded) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  }
  return text;
}

std::string canonical_request(const SignedRequest& request) {
  std::string text = fmt::format("{}\n{}\n{}\n", request.method, request.path, request.query);
  for (const auto& [name, value] : sorted_headers(request)) {
    text += fmt::format("{}:{}\n", name, value);
  }
  text += fmt::format(
      "\n{}\n{}",
      header_names(request),
      request.body_sha256.empty() ? kEmptySha256 : std::string_view(request.body_sha256));
  return text;
}

std::string authorization(const SignedRequest& request,
                          const SignatureScope& scope,
                          const S3Credentials& credentials) {
  const std::string date = amz_date(scope.time_s);
  const std::string to_sign = fmt::format(
      "{}\n{}\n{}\n{}", kAlgorithm, date, scope_text(scope), sha256_of(canonical_request(request)));
  std::string key = hmac("AWS4" + credentials.secret_key, date.substr(0, 8));
  for (const std::string_view part : {std::string_view(scope.region),
                                      std::string_view(scope.service),
                                      std::string_view("aws4_request")}) {
    key = hmac(key, part);
  }
  return fmt::format("{} Credential={}/{},SignedHeaders={},Signature={}",
                     kAlgorithm,
                     credentials.access_key,
                     scope_text(scope),
                     header_names(request),
                     hexadecimal(hmac(key, to_sign)));
}

std::vector<std::string> signing_headers(const SignedRequest& request,
                                         std::string_view host,
                                         const SignatureScope& scope,
                                         const S3Credentials& credentials) {
  if (credentials.access_key.empty()) {
    return {};
  }
  SignedRequest whole = request;
  whole.headers.emplace_back("host", host);
  whole.headers.emplace_back("x-amz-date", amz_date(scope.time_s));
  whole.headers.emplace_back("x-amz-content-sha256", kEmptySha256);
  if (!credentials.session_token.empty()) {
    whole.headers.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : whole.headers) {
    if (name != "host") {  // libcurl writes it.
      lines.push_back(name + ": " + value);
    }
  }
  lines.push_back("Authorization: " + authorization(whole, scope, credentials));
  return lines;
}

}  // namespace heddle::fetch
