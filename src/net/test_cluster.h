#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "net/authority.h"
#include "net/credentials.h"
#include "net/host_link.h"
#include "net/openssl.h"
#include "net/tls_stream.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

namespace heddle::net {

inline std::chrono::sys_seconds system_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

/// A certificate that no authority of ours would issue.
struct OddCertificate {
  const char* names = "URI:heddle://prod/agent/odd";
  const char* use = "serverAuth,clientAuth";
  const char* constraints = "critical,CA:FALSE";
};

/// A cluster's authority and certificates, in a folder that is removed afterwards.
class TestCluster {
 public:
  explicit TestCluster(const std::string& cluster = "prod") {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-net-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    const Validity validity{.now = system_now() - std::chrono::days(30),
                            .days = std::chrono::days(3650)};
    const Result<IssuedFiles> made = make_authority(folder_, cluster, validity);
    HEDDLE_CHECK(made.has_value());
    authority_ = *made;
  }
  ~TestCluster() { std::filesystem::remove_all(folder_); }
  TestCluster(const TestCluster&) = delete;
  TestCluster& operator=(const TestCluster&) = delete;

  [[nodiscard]] std::string folder() const { return folder_; }
  [[nodiscard]] IssuedFiles authority() const { return authority_; }

  /// @param age  How long ago it was issued, for one day.
  CredentialFiles issue(Role role, const std::string& name, std::chrono::days age = {}) {
    const Result<IssuedFiles> made =
        issue_certificate(folder_,
                          {.role = role, .name = name},
                          {.now = system_now() - age, .days = std::chrono::days(1)});
    HEDDLE_CHECK(made.has_value());
    return {
        .authority = authority_.certificate, .certificate = made->certificate, .key = made->key};
  }

  /// As issue(), of what is odd.
  CredentialFiles sign(const OddCertificate& odd) {
    const FilePtr ca_file(std::fopen(authority_.certificate.c_str(), "re"));
    const X509Ptr ca(PEM_read_X509(ca_file.get(), nullptr, nullptr, nullptr));
    const FilePtr ca_key_file(std::fopen(authority_.key.c_str(), "re"));
    const KeyPtr ca_key(PEM_read_PrivateKey(ca_key_file.get(), nullptr, nullptr, nullptr));
    const KeyPtr key(EVP_EC_gen("P-256"));
    const X509Ptr made(X509_new());
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++odd_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_issuer_name(made.get(), X509_get_subject_name(ca.get()));
    X509_set_pubkey(made.get(), key.get());
    const std::vector<std::pair<int, const char*>> extensions = {
        {NID_subject_alt_name, odd.names},
        {NID_ext_key_usage, odd.use},
        {NID_basic_constraints, odd.constraints}};
    for (const auto& [kind, value] : extensions) {
      X509_EXTENSION* const extension = X509V3_EXT_nconf_nid(nullptr, nullptr, kind, value);
      HEDDLE_CHECK(extension != nullptr);
      X509_add_ext(made.get(), extension, -1);
      X509_EXTENSION_free(extension);
    }
    HEDDLE_CHECK(X509_sign(made.get(), ca_key.get(), EVP_sha256()) > 0);
    const std::string path = folder_ + "/odd" + std::to_string(odd_);
    const FilePtr certificate_file(std::fopen((path + ".crt").c_str(), "we"));
    PEM_write_X509(certificate_file.get(), made.get());
    const FilePtr key_file(std::fopen((path + ".key").c_str(), "we"));
    PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return {
        .authority = authority_.certificate, .certificate = path + ".crt", .key = path + ".key"};
  }

 private:
  std::string folder_{};
  IssuedFiles authority_{};
  long odd_ = 0;
};

/// A process with these files, which must be good.
inline Self self_of(const CredentialFiles& files) {
  const auto credentials = Credentials::open(files);
  HEDDLE_CHECK(credentials.has_value());
  return {.credentials = *credentials, .incarnation = 1, .build = "test", .isa = "none"};
}

/// Turns the loop until `done`, which must come true through the events under way.
inline void run_until(boost::asio::io_context& loop, const std::function<bool()>& done) {
  while (!done()) {
    loop.restart();
    loop.run_one();
  }
}

using TcpSocket = boost::asio::ip::tcp::socket;

/// Two ends of a connection over loopback: who connects, who accepts.
inline std::pair<TcpSocket, TcpSocket> tcp_pair(boost::asio::io_context& loop) {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(loop, {boost::asio::ip::address_v4::loopback(), 0});
  TcpSocket connecting(loop);
  connecting.connect(acceptor.local_endpoint());
  return {std::move(connecting), acceptor.accept()};
}

/// A peer that speaks TLS, and then says what the test has it say.
class RawPeer {
 public:
  RawPeer(TcpSocket socket, Side side, std::shared_ptr<Credentials> credentials)
      : credentials_(std::move(credentials)),
        stream_(std::make_unique<TlsStream>(std::move(socket), side, *credentials_)) {
    shake();
  }

  [[nodiscard]] bool shaken() const { return link.has_value() || bare_; }

  /// Without a link: `said` is sent as it is, then the connection is cut, or else left as it is.
  void only_say(std::string said, bool then_cut) {
    bare_ = true;
    said_ = std::move(said);
    cut_ = then_cut;
  }

  std::vector<rpc::Frame> frames{};
  std::optional<Error> end{};
  std::optional<rpc::Link> link{};

 private:
  void shake() {
    const rpc::Stream::Moved moved = stream_->shake();
    if (moved.end) {
      end = moved.end;
    } else if (moved.bytes == 0) {
      stream_->socket().async_wait(moved.until, [this](const boost::system::error_code& stopped) {
        if (!stopped) {
          shake();
        }
      });
    } else if (bare_) {
      HEDDLE_CHECK(stream_->send({}, said_, {}).bytes == said_.size());
      if (cut_) {
        boost::system::error_code ignored;
        stream_->socket().close(ignored);
      }
    } else {
      link.emplace(std::move(stream_),
                   rpc::Link::Handlers{
                       .on_frame = [this](rpc::Frame frame) { frames.push_back(std::move(frame)); },
                       .on_closed = [this](const Error& error) { end = error; }});
    }
  }

  std::shared_ptr<Credentials> credentials_;
  std::unique_ptr<TlsStream> stream_;
  bool bare_ = false;
  std::string said_{};
  bool cut_ = false;
};

}  // namespace heddle::net
