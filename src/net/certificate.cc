#include "net/certificate.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

#include "net/openssl.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace heddle::net {

namespace {

using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

Error no_member(const std::string& why) {
  return {.code = Code::kInvalidArgument,
          .message = "the certificate is of no cluster: " + why +
                     "; want exactly one alternative name (URI) heddle://CLUSTER/ROLE/NAME"};
}

std::string text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

/// Empty for what is no address.
std::string ip_text(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int length = ASN1_STRING_length(address);
  if (length != 4 && length != 16) {
    return "";
  }
  inet_ntop(
      length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), text.data(), text.size());
  return text.data();
}

std::chrono::sys_seconds time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return {};
  }
  return std::chrono::sys_seconds(std::chrono::seconds(timegm(&parts)));
}

Result<void> read_uri(const std::string& uri, CertificateFacts& facts) {
  if (!facts.cluster.empty()) {
    return no_member("it has several");
  }
  const std::string_view rest = std::string_view(uri).substr(kScheme.size());
  if (rest.find('/') == std::string_view::npos) {
    facts.cluster = rest;
    const Result<void> named = check_name("cluster", rest);
    return named ? named : no_member(named.error().message);
  }
  Result<Identity> identity = parse_identity(uri);
  if (!identity) {
    return no_member(identity.error().message);
  }
  facts.cluster = identity->cluster;
  facts.identity = std::move(*identity);
  return {};
}

}  // namespace

std::string time_text(std::chrono::sys_seconds time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts{};
  std::array<char, 64> text{};
  gmtime_r(&seconds, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

Result<CertificateFacts> facts_of(const X509& certificate) {
  CertificateFacts facts{.from = time_of(X509_get0_notBefore(&certificate)),
                         .until = time_of(X509_get0_notAfter(&certificate))};
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const entry = sk_GENERAL_NAME_value(names.get(), i);
    if (entry->type == GEN_DNS) {
      facts.addresses.push_back(text_of(entry->d.dNSName));
    } else if (entry->type == GEN_IPADD) {
      facts.addresses.push_back(ip_text(entry->d.iPAddress));
    } else if (entry->type == GEN_URI) {
      const std::string uri = text_of(entry->d.uniformResourceIdentifier);
      const Result<void> read = uri.starts_with(kScheme) ? read_uri(uri, facts) : Result<void>();
      if (!read) {
        return read.error();
      }
    }
  }
  if (facts.cluster.empty()) {
    return no_member("it has none");
  }
  return facts;
}

Result<CertificateFacts> read_certificate(const std::string& file) {
  const FilePtr stream(std::fopen(file.c_str(), "re"));
  if (stream == nullptr) {
    return Error{.code = Code::kNotFound,
                 .message = "read \"" + file + "\": " + std::strerror(errno)};
  }
  const X509Ptr certificate(PEM_read_X509(stream.get(), nullptr, no_passphrase, nullptr));
  if (certificate == nullptr) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + file + "\" has no certificate: " + openssl_reason() +
                            "; want PEM, as `heddle certs issue` writes it"};
  }
  Result<CertificateFacts> facts = facts_of(*certificate);
  if (!facts) {
    return Error{.code = facts.error().code,
                 .message = "\"" + file + "\": " + facts.error().message};
  }
  return facts;
}

Result<void> check_time(const CertificateFacts& facts, std::chrono::sys_seconds now) {
  if (now >= facts.until) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = "the certificate has expired: it was good until " +
                            time_text(facts.until) + ", and this host's clock says " +
                            time_text(now) + "; issue a new one"};
  }
  if (now < facts.from) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = "the certificate is not good before " + time_text(facts.from) +
                            ", and this host's clock says " + time_text(now) +
                            "; set the clock, or wait"};
  }
  return {};
}

}  // namespace heddle::net
