#include "gateway/tls_files.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "net/openssl.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::gateway {

namespace {

constexpr std::string_view kAlpn = "\x08http/1.1";
constexpr int kSecurityLevel = 2;  ///< Of OpenSSL: keys of RSA from 2048 bits, no SHA-1.

Error wrong(std::string_view key, const std::string& file, const std::string& why) {
  return {.code = Code::kInvalidArgument,
          .message = "tls." + std::string(key) + ": \"" + file + "\" " + why};
}

/// Empty: `file` is one that can be read.
std::string unreadable(const std::string& file) {
  struct stat state{};
  if (stat(file.c_str(), &state) != 0 || access(file.c_str(), R_OK) != 0) {
    return std::string("cannot be read: ") + std::strerror(errno);
  }
  return S_ISREG(state.st_mode) ? "" : "is not a file";
}

/// Takes HTTP/1.1 where the client names protocols at all; none other is spoken here.
int choose_protocol(SSL* /*session*/,
                    const unsigned char** chosen,
                    unsigned char* chosen_size,
                    const unsigned char* offered,
                    unsigned int offered_size,
                    void* /*unused*/) {
  unsigned char* found = nullptr;
  const int outcome = SSL_select_next_proto(&found,
                                            chosen_size,
                                            reinterpret_cast<const unsigned char*>(kAlpn.data()),
                                            static_cast<unsigned int>(kAlpn.size()),
                                            offered,
                                            offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

TlsContext make_context() {
  TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX* const tls = context.get();
  if (tls == nullptr) {
    return context;
  }
  SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
  SSL_CTX_set_security_level(tls, kSecurityLevel);
  // A client that hangs up without saying so has hung up: HTTP says where its requests end.
  SSL_CTX_set_options(
      tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(tls,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);  // Tickets do, and cost no memory.
  SSL_CTX_set_alpn_select_cb(tls, choose_protocol, nullptr);
  SSL_CTX_set_default_passwd_cb(tls, net::no_passphrase);
  return context;
}

Result<TlsContext> read_pair(const config::TlsConfig& files) {
  const auto& [certificate, key] = files;
  if (const std::string why = unreadable(certificate); !why.empty()) {
    return wrong("certificate", certificate, why);
  }
  if (const std::string why = unreadable(key); !why.empty()) {
    return wrong("key", key, why);
  }
  ERR_clear_error();
  TlsContext context = make_context();
  if (context == nullptr) {
    return Error{.code = Code::kUnavailable, .message = "tls: " + net::openssl_reason()};
  }
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1) {
    return wrong("certificate",
                 certificate,
                 "has no certificate that can be used: " + net::openssl_reason() +
                     "; want PEM, the server's own first, with RSA of 2048 bits or more, or ECDSA");
  }
  // Whether the two belong together is looked at apart, for a message of its own.
  if (SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return wrong("key",
                 key,
                 "is no key for the certificate \"" + certificate + "\": " + net::openssl_reason() +
                     "; want its private key in PEM, without a passphrase");
  }
  return context;
}

}  // namespace

TlsFiles::Stamps TlsFiles::stamps_of(const config::TlsConfig& files) {
  return {stamp_of(files.certificate), stamp_of(files.key)};
}

Result<TlsFiles> TlsFiles::open(config::TlsConfig files) {
  const Stamps stamps = stamps_of(files);
  Result<TlsContext> context = read_pair(files);
  if (!context) {
    return context.error();
  }
  return TlsFiles(std::move(files), stamps, std::move(context).value());
}

std::vector<std::string> TlsFiles::warnings() const {
  std::vector<std::string> unwise;
  struct stat state{};
  if (stat(files_.key.c_str(), &state) == 0 && (state.st_mode & S_IROTH) != 0) {
    unwise.push_back("tls.key: every user of this machine may read \"" + files_.key +
                     "\"; chmod o-r it");
  }
  const X509* certificate = SSL_CTX_get0_certificate(context_.get());
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    unwise.push_back("tls.certificate: \"" + files_.certificate +
                     "\" has expired, and clients will refuse it; renew it");
  }
  return unwise;
}

void TlsFiles::reload(config::TlsConfig files) {
  const Stamps stamps = stamps_of(files);
  Result<TlsContext> context = read_pair(files);
  if (!context) {
    stamps_ = stamps;  // Said once for each time that they are written.
    log::error("the certificate was not reloaded; the one before is kept",
               {{"why", context.error().message}});
    return;
  }
  *this = TlsFiles(std::move(files), stamps, std::move(context).value());
  log::info("certificate reloaded", {{"file", files_.certificate}});
  for (const std::string& warning : warnings()) {
    log::warning(warning);
  }
}

void TlsFiles::reload_if_changed() {
  if (stamps_of(files_) != stamps_) {
    reload(files_);
  }
}

}  // namespace heddle::gateway
