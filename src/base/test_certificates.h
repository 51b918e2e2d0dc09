#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

namespace heddle::test {

/// Of one certificate for "localhost".
struct CertificateFiles {
  std::string certificate{};
  std::string key{};
};

/// A folder with certificates that vouch for themselves; removed afterwards.
class CertificateFolder {
 public:
  CertificateFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-tls-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~CertificateFolder() { std::filesystem::remove_all(folder_); }
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  [[nodiscard]] std::filesystem::path folder() const { return folder_; }

  /// Writes NAME.crt and NAME.key. They are good for `seconds` from now on, or were until then.
  CertificateFiles write(const std::string& name,
                         long serial,
                         long seconds = 3600,
                         const char* passphrase = nullptr) {
    const CertificateFiles files{.certificate = folder_ / (name + ".crt"),
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

}  // namespace heddle::test
