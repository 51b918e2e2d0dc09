#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "config/config.h"
#include "gateway/test_client.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

namespace heddle::gateway {

/// A folder with certificates that vouch for themselves; removed afterwards.
class TestCertificates {
 public:
  TestCertificates() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-tls-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TestCertificates() { std::filesystem::remove_all(folder_); }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  [[nodiscard]] std::filesystem::path folder() const { return folder_; }

  /// Writes NAME.crt and NAME.key. They are good for `seconds` from now on, or were until then.
  config::TlsConfig write(const std::string& name,
                          long serial,
                          long seconds = 3600,
                          const char* passphrase = nullptr) {
    const config::TlsConfig files{.certificate = folder_ / (name + ".crt"),
                                  .key = folder_ / (name + ".key")};
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
    X509_set_pubkey(certificate, key);
    X509_NAME* subject = X509_get_subject_name(certificate);
    const std::string host = "localhost";
    X509_NAME_add_entry_by_txt(subject,
                               "CN",
                               MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(host.data()),
                               static_cast<int>(host.size()),
                               -1,
                               0);
    X509_set_issuer_name(certificate, subject);
    X509_sign(certificate, key, EVP_sha256());
    std::FILE* file = std::fopen(files.certificate.c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    file = std::fopen(files.key.c_str(), "w");
    PEM_write_PrivateKey(file,
                         key,
                         passphrase == nullptr ? nullptr : EVP_aes_128_cbc(),
                         nullptr,
                         0,
                         nullptr,
                         const_cast<char*>(passphrase));  // As the call wants it.
    std::fclose(file);
    std::filesystem::permissions(files.key, std::filesystem::perms(0600));
    X509_free(certificate);
    EVP_PKEY_free(key);
    return files;
  }

 private:
  std::filesystem::path folder_{};
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
