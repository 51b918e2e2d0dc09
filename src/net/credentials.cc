#include "net/credentials.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "net/certificate.h"
#include "net/openssl.h"

#include <openssl/err.h>

namespace heddle::net {

namespace {

using ContextPtr = std::shared_ptr<SSL_CTX>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>>;

constexpr int kSecurityLevel = 2;  ///< Of OpenSSL: keys of RSA from 2048 bits, no SHA-1.

Error wrong(const std::string& file, const std::string& why) {
  return {.code = Code::kInvalidArgument, .message = "\"" + file + "\" " + why};
}

ContextPtr make_context() {
  ContextPtr context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  SSL_CTX* const tls = context.get();
  if (tls == nullptr) {
    return context;
  }
  SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(tls, TLS1_3_VERSION);
  SSL_CTX_set_security_level(tls, kSecurityLevel);
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Every link shows its certificates: none is resumed from a session of before.
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(tls, 0);
  SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_default_passwd_cb(tls, no_passphrase);
  return context;
}

/// Asks of the own certificate what the others will ask.
Result<void> check_own(SSL_CTX* context, const CredentialFiles& files) {
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  for (const char* const purpose : {"ssl_client", "ssl_server"}) {
    const StoreContextPtr check(X509_STORE_CTX_new());
    if (check == nullptr || X509_STORE_CTX_init(check.get(),
                                                SSL_CTX_get_cert_store(context),
                                                SSL_CTX_get0_certificate(context),
                                                chain) != 1) {
      return wrong(files.certificate, "cannot be checked: " + openssl_reason());
    }
    X509_STORE_CTX_set_default(check.get(), purpose);
    if (X509_verify_cert(check.get()) != 1) {
      const int why = X509_STORE_CTX_get_error(check.get());
      return Error{.code = Code::kFailedPrecondition,
                   .message = "\"" + files.certificate + "\" is not good for the authority \"" +
                              files.authority + "\" (" + X509_verify_cert_error_string(why) +
                              "); want one that it has issued, for servers and for clients"};
    }
  }
  return {};
}

Result<Identity> read_identity(const CredentialFiles& files) {
  const Result<CertificateFacts> facts = read_certificate(files.certificate);
  if (!facts) {
    return facts.error();
  }
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  if (const Result<void> good = check_time(*facts, now); !good) {
    return Error{.code = good.error().code,
                 .message = "\"" + files.certificate + "\": " + good.error().message};
  }
  if (!facts->identity) {
    return wrong(files.certificate,
                 "is an authority's; want what `heddle certs issue` wrote for this process");
  }
  return *facts->identity;
}

Result<ContextPtr> read_context(const CredentialFiles& files) {
  ERR_clear_error();
  ContextPtr context = make_context();
  if (context == nullptr) {
    return Error{.code = Code::kUnavailable, .message = "TLS: " + openssl_reason()};
  }
  if (SSL_CTX_load_verify_file(context.get(), files.authority.c_str()) != 1) {
    return wrong(files.authority,
                 "has no certificate of an authority: " + openssl_reason() +
                     "; want PEM, as `heddle certs init` writes it");
  }
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return wrong(files.certificate,
                 "has no certificate that can be used: " + openssl_reason() +
                     "; want PEM, with ECDSA, or RSA of 2048 bits or more");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return wrong(files.key,
                 "is no key for the certificate \"" + files.certificate + "\": " +
                     openssl_reason() + "; want its private key in PEM, without a passphrase");
  }
  const Result<void> own = check_own(context.get(), files);
  return own ? Result<ContextPtr>(context) : own.error();
}

std::array<FileStamp, 3> stamps_of(const CredentialFiles& files) {
  return {stamp_of(files.authority), stamp_of(files.certificate), stamp_of(files.key)};
}

}  // namespace

Result<std::shared_ptr<Credentials>> Credentials::open(CredentialFiles files) {
  const Stamps stamps = stamps_of(files);
  Result<Identity> identity = read_identity(files);
  if (!identity) {
    return identity.error();
  }
  Result<ContextPtr> context = read_context(files);
  if (!context) {
    return context.error();
  }
  return std::shared_ptr<Credentials>(
      new Credentials(std::move(files), stamps, std::move(*identity), std::move(*context)));
}

std::shared_ptr<ssl_ctx_st> Credentials::context() {
  const Stamps stamps = stamps_of(files_);
  if (stamps == stamps_) {
    return context_;
  }
  stamps_ = stamps;  // What is wrong is said once for each time that they are written.
  const Result<std::shared_ptr<Credentials>> read = open(files_);
  if (read && (*read)->identity_ == identity_) {
    context_ = (*read)->context_;
    log::info("certificate read again", {{"file", files_.certificate}});
  } else {
    log::error("the certificate was not read again; the one before is kept",
               {{"why",
                 read ? "it names " + (*read)->identity_.text() + " in place of " + identity_.text()
                      : read.error().message}});
  }
  return context_;
}

}  // namespace heddle::net
