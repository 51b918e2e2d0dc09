#include "net/authority.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/descriptor.h"
#include "net/certificate.h"
#include "net/openssl.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::net {

namespace {

using NumberPtr = std::unique_ptr<BIGNUM, Freed<BN_free>>;

constexpr std::chrono::minutes kClocksDiffer{5};
constexpr int kSerialBits = 127;
constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kReadable = 0644;
constexpr std::size_t kAddressMost = 253;

/// A certificate and its key.
struct Pair {
  X509Ptr certificate{};
  KeyPtr key{};
};

/// An extension: what kind, and its value as OpenSSL's configuration files have it.
struct Extension {
  int kind;
  std::string value;
};

Error openssl_failed(const std::string& what) {
  return {.code = Code::kUnavailable, .message = what + ": " + openssl_reason()};
}

Error cannot_write(const std::string& file) {
  if (errno == EEXIST) {
    return {.code = Code::kFailedPrecondition,
            .message = "\"" + file +
                       "\" is there and will not be overwritten; "
                       "move it away, or choose another name or folder"};
  }
  return {.code = Code::kUnavailable, .message = "write \"" + file + "\": " + std::strerror(errno)};
}

bool is_numeric(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  return inet_pton(AF_INET, address.c_str(), parsed.data()) == 1 ||
         inet_pton(AF_INET6, address.c_str(), parsed.data()) == 1;
}

Result<void> check_address(const std::string& address) {
  const bool named = !address.empty() && address.size() <= kAddressMost && address.front() != '-' &&
                     address.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789.-") == std::string::npos;
  if (is_numeric(address) || named) {
    return {};
  }
  return Error{.code = Code::kInvalidArgument,
               .message = "\"" + address +
                          "\" is no address; want the name of a host or a numeric "
                          "address, without a port"};
}

std::string addresses_text(const std::vector<std::string>& addresses) {
  std::string text;
  for (const std::string& address : addresses) {
    text += (is_numeric(address) ? ",IP:" : ",DNS:") + address;
  }
  return text;
}

bool set_serial(X509* certificate) {
  const NumberPtr number(BN_new());
  return BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_times(X509* certificate, const Validity& validity) {
  const auto seconds = [](std::chrono::sys_seconds time) {
    return static_cast<std::time_t>(time.time_since_epoch().count());
  };
  return ASN1_TIME_set(X509_getm_notBefore(certificate), seconds(validity.now - kClocksDiffer)) !=
             nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), seconds(validity.now + validity.days)) !=
             nullptr;
}

bool set_subject(X509* certificate, const std::string& text) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate),
                                    "CN",
                                    MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()),
                                    -1,
                                    0) == 1;
}

bool add_extensions(X509* certificate, X509* issuer, const std::vector<Extension>& extensions) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  return std::all_of(extensions.begin(), extensions.end(), [&](const Extension& extension) {
    const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> made(
        X509V3_EXT_nconf_nid(nullptr, &context, extension.kind, extension.value.c_str()));
    return made != nullptr && X509_add_ext(certificate, made.get(), -1) == 1;
  });
}

/// @param issuer  nullptr: it vouches for itself.
Result<Pair> make_pair_of(const std::string& subject,
                          const std::vector<Extension>& extensions,
                          const Validity& validity,
                          const Pair* issuer) {
  Pair made{.certificate = X509Ptr(X509_new()), .key = KeyPtr(EVP_EC_gen("P-256"))};
  X509* const certificate = made.certificate.get();
  if (certificate == nullptr || made.key == nullptr) {
    return openssl_failed("make a key");
  }
  X509* const by = issuer != nullptr ? issuer->certificate.get() : certificate;
  EVP_PKEY* const with = issuer != nullptr ? issuer->key.get() : made.key.get();
  const bool done = X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
                    set_times(certificate, validity) && set_subject(certificate, subject) &&
                    X509_set_issuer_name(certificate, X509_get_subject_name(by)) == 1 &&
                    X509_set_pubkey(certificate, made.key.get()) == 1 &&
                    add_extensions(certificate, by, extensions) &&
                    X509_sign(certificate, with, EVP_sha256()) > 0;
  if (!done) {
    return openssl_failed("make a certificate");
  }
  return made;
}

std::string content_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

Result<void> write_new(const std::string& file, std::string_view content, mode_t mode) {
  const Descriptor fd(::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode));
  if (!fd) {
    return cannot_write(file);
  }
  while (!content.empty()) {
    const ssize_t written = ::write(fd.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) {
      const Error failed = cannot_write(file);
      ::unlink(file.c_str());
      return failed;
    }
    content.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

/// Both files, or none.
Result<void> write_pair(const Pair& pair, const IssuedFiles& files) {
  const BioPtr certificate(BIO_new(BIO_s_mem()));
  const BioPtr key(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate.get(), pair.certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey(key.get(), pair.key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1) {
    return openssl_failed("write a certificate");
  }
  if (::access(files.certificate.c_str(), F_OK) == 0) {
    errno = EEXIST;
    return cannot_write(files.certificate);
  }
  if (const Result<void> written = write_new(files.key, content_of(key.get()), kOwnerOnly);
      !written) {
    return written;
  }
  Result<void> written = write_new(files.certificate, content_of(certificate.get()), kReadable);
  if (!written) {
    ::unlink(files.key.c_str());
  }
  return written;
}

IssuedFiles files_in(const std::string& folder, const std::string& name) {
  const std::filesystem::path path(folder);
  return {.certificate = path / (name + ".crt"), .key = path / (name + ".key")};
}

Result<Pair> read_authority(const IssuedFiles& files) {
  Pair authority;
  const FilePtr certificate(std::fopen(files.certificate.c_str(), "re"));
  const FilePtr key(std::fopen(files.key.c_str(), "re"));
  if (certificate == nullptr || key == nullptr) {
    return Error{.code = Code::kNotFound,
                 .message = "read \"" + (certificate == nullptr ? files.certificate : files.key) +
                            "\": " + std::strerror(errno) +
                            "; `heddle certs init` makes an authority"};
  }
  authority.certificate.reset(PEM_read_X509(certificate.get(), nullptr, no_passphrase, nullptr));
  authority.key.reset(PEM_read_PrivateKey(key.get(), nullptr, no_passphrase, nullptr));
  if (authority.certificate == nullptr || authority.key == nullptr ||
      X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + files.key + "\" is no key for \"" + files.certificate +
                            "\": " + openssl_reason() +
                            "; want what `heddle certs init` wrote, both of one time"};
  }
  return authority;
}

/// Whether it may vouch for others, of which cluster, and for how long.
Result<CertificateFacts> check_authority(const Pair& authority,
                                         const std::string& file,
                                         const Validity& validity) {
  Result<CertificateFacts> facts = facts_of(*authority.certificate);
  if (facts && (facts->identity || X509_check_ca(authority.certificate.get()) == 0)) {
    facts = Error{.code = Code::kInvalidArgument,
                  .message =
                      "the certificate is no authority's; want what `heddle certs init` "
                      "wrote"};
  }
  if (const Result<void> good = facts ? check_time(*facts, validity.now) : Result<void>(); !good) {
    facts = good.error();
  }
  if (facts && validity.now + validity.days > facts->until) {
    const auto left = std::chrono::floor<std::chrono::days>(facts->until - validity.now);
    facts = Error{.code = Code::kFailedPrecondition,
                  .message = "the authority is good until " + time_text(facts->until) +
                             ", which a certificate of " + std::to_string(validity.days.count()) +
                             " days would outlive; want --days " + std::to_string(left.count()) +
                             " or fewer, or a new authority"};
  }
  if (!facts) {
    return Error{.code = facts.error().code,
                 .message = "\"" + file + "\": " + facts.error().message};
  }
  return facts;
}

}  // namespace

Result<IssuedFiles> make_authority(const std::string& folder,
                                   const std::string& cluster,
                                   const Validity& validity) {
  if (const Result<void> named = check_name("cluster", cluster); !named) {
    return named.error();
  }
  const Result<Pair> made = make_pair_of("heddle authority",
                                         {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                          {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                          {NID_subject_key_identifier, "hash"},
                                          {NID_subject_alt_name, "URI:heddle://" + cluster}},
                                         validity,
                                         nullptr);
  if (!made) {
    return made.error();
  }
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return cannot_write(folder);
  }
  const IssuedFiles files = files_in(folder, kAuthority);
  const Result<void> written = write_pair(*made, files);
  return written ? Result<IssuedFiles>(files) : written.error();
}

Result<IssuedFiles> issue_certificate(const std::string& folder,
                                      const CertificateRequest& request,
                                      const Validity& validity) {
  if (const Result<void> named = check_name("process", request.name); !named) {
    return named.error();
  }
  for (const std::string& address : request.addresses) {
    if (const Result<void> checked = check_address(address); !checked) {
      return checked.error();
    }
  }
  const IssuedFiles own = files_in(folder, kAuthority);
  const Result<Pair> authority = read_authority(own);
  if (!authority) {
    return authority.error();
  }
  const Result<CertificateFacts> facts = check_authority(*authority, own.certificate, validity);
  if (!facts) {
    return facts.error();
  }
  const Identity identity{.cluster = facts->cluster, .role = request.role, .name = request.name};
  const Result<Pair> made = make_pair_of(
      "heddle " + std::string(name(request.role)),
      {{NID_basic_constraints, "critical,CA:FALSE"},
       {NID_key_usage, "critical,digitalSignature"},
       {NID_ext_key_usage, "serverAuth,clientAuth"},
       {NID_subject_key_identifier, "hash"},
       {NID_authority_key_identifier, "keyid"},
       {NID_subject_alt_name, "URI:" + identity.uri() + addresses_text(request.addresses)}},
      validity,
      &*authority);
  if (!made) {
    return made.error();
  }
  const IssuedFiles files = files_in(folder, request.name);
  const Result<void> written = write_pair(*made, files);
  return written ? Result<IssuedFiles>(files) : written.error();
}

}  // namespace heddle::net
