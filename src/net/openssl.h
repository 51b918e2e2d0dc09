#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

/// What code that uses OpenSSL has in common. Not for headers that others include.
namespace heddle::net {

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using FilePtr = std::unique_ptr<std::FILE, Freed<std::fclose>>;
using X509Ptr = std::unique_ptr<X509, Freed<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using SslPtr = std::unique_ptr<SSL, Freed<SSL_free>>;

/// Why OpenSSL's last call on this thread failed. Forgets it.
[[nodiscard]] std::string openssl_reason();

/// A passphrase callback which has none: a key with a passphrase is refused, and OpenSSL asks for
/// nothing on the terminal.
int no_passphrase(char* buffer, int size, int writing, void* unused);

/// Reads and writes a socket that stays its owner's, without waiting. OpenSSL's own way raises
/// SIGPIPE where the other side has gone.
[[nodiscard]] BIO* make_socket_bio(int socket);

}  // namespace heddle::net
