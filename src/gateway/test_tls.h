#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/test_certificates.h"
#include "config/config.h"
#include "gateway/test_client.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace heddle::gateway {

/// A folder with certificates of servers; removed afterwards.
class TestCertificates : public test::CertificateFolder {
 public:
  /// As CertificateFolder::write().
  config::TlsConfig write(const std::string& name,
                          long serial,
                          long seconds = 3600,
                          const char* passphrase = nullptr) {
    const test::CertificateFiles files =
        CertificateFolder::write(name, serial, seconds, passphrase);
    return {.certificate = files.certificate, .key = files.key};
  }
};

/// A TestClient over TLS, which takes any certificate.
class TlsTestClient : public TestClient {
 public:
  explicit TlsTestClient(std::uint16_t port, int newest = TLS1_3_VERSION, int receive_buffer = 0)
      : TestClient(port, receive_buffer),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free),
        session_(nullptr, SSL_free) {
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), newest);
    session_.reset(SSL_new(context_.get()));
    SSL_set_fd(session_.get(), socket());
    shaken_ = SSL_connect(session_.get()) == 1;
  }

  [[nodiscard]] bool shaken() const { return shaken_; }
  /// Of the certificate that the server has shown.
  [[nodiscard]] long serial() const {
    return ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get0_peer_certificate(session_.get())));
  }
  /// Says that no more comes, and goes on reading.
  void say_goodbye() { SSL_shutdown(session_.get()); }
  /// Whether the server has said so.
  [[nodiscard]] bool was_told_goodbye() const {
    return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

 protected:
  ssize_t write_some(std::string_view bytes) override {
    return SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  ssize_t read_some(char* bytes, std::size_t most) override {
    return SSL_read(session_.get(), bytes, static_cast<int>(most));
  }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> session_;
  bool shaken_ = false;
};

}  // namespace heddle::gateway
