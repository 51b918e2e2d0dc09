#include "net/tls_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "net/certificate.h"
#include "net/openssl.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace heddle::net {

namespace {

constexpr std::size_t kRecordBytes = 16384;  ///< Most that one record of TLS carries.

Error cut(const std::string& why) {
  return {.code = Code::kUnavailable, .message = "the connection was cut: " + why};
}

/// What the peer's alert means, in which it refuses us; empty: something else.
std::string refusal_of(int alert) {
  switch (alert) {
    case SSL_AD_UNKNOWN_CA:
      return "it does not know the authority that has issued our certificate; want one of its own "
             "cluster, issued by its authority";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "our certificate has expired; issue a new one";
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return "it does not accept our certificate; its log says why";
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "it wants a certificate, and we have shown none";
    case SSL_AD_PROTOCOL_VERSION:
      return "it does not speak TLS 1.3";
    default:
      return "";
  }
}

/// Of OpenSSL's error `code`.
Error tls_error(unsigned long code) {
  const int reason = ERR_GET_REASON(code);
  const char* const text = ERR_reason_error_string(code);
  switch (reason) {
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return cut("the peer has gone without a word");
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {.code = Code::kFailedPrecondition,
              .message =
                  "it shows no certificate; want one that the cluster's authority has "
                  "issued"};
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return {.code = Code::kFailedPrecondition, .message = "it does not speak TLS 1.3"};
    default:
      break;
  }
  if (reason >= SSL_AD_REASON_OFFSET) {
    const std::string refusal = refusal_of(reason - SSL_AD_REASON_OFFSET);
    if (!refusal.empty()) {
      return {.code = Code::kFailedPrecondition, .message = "the peer refuses us: " + refusal};
    }
  }
  return {.code = Code::kUnavailable,
          .message = std::string("TLS: ") + (text != nullptr ? text : "reason unknown")};
}

/// What is wrong with a certificate that OpenSSL does not accept.
std::string wrong_with(const X509& certificate, int why, const Credentials& ours) {
  const Result<CertificateFacts> facts = facts_of(certificate);
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  switch (why) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      if (facts) {
        const Result<void> good = check_time(*facts, now);
        return good ? "the clock of this host has been set" : good.error().message;
      }
      return X509_verify_cert_error_string(why);
    case X509_V_ERR_INVALID_PURPOSE:
      return "it is not for links; want one for servers and for clients";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "it was not issued by the authority of \"" + ours.files().authority +
             "\"; want one of cluster \"" + ours.identity().cluster + "\", issued by that";
    default:
      return X509_verify_cert_error_string(why);
  }
}

}  // namespace

TlsStream::TlsStream(boost::asio::ip::tcp::socket socket, Side side, Credentials& credentials)
    : socket_(std::move(socket)),
      credentials_(credentials),
      session_(SSL_new(credentials.context().get()), SSL_free),
      record_(kRecordBytes) {
  SSL* const session = session_.get();
  HEDDLE_CHECK(session != nullptr);
  BIO* const bio = make_socket_bio(socket_.native_handle());
  SSL_set_bio(session, bio, bio);
  SSL_set_app_data(session, this);
  SSL_set_verify(session, SSL_get_verify_mode(session), verify);
  if (side == Side::kConnects) {
    SSL_set_connect_state(session);
  } else {
    SSL_set_accept_state(session);
  }
}

TlsStream::~TlsStream() {
  close();
}

/// OpenSSL's question for each certificate of the peer's chain.
int TlsStream::verify(int good, X509_STORE_CTX* check) {
  if (good != 1) {
    auto* const session =
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
    static_cast<TlsStream*>(SSL_get_app_data(session))->doubt(check);
  }
  return good;
}

void TlsStream::doubt(X509_STORE_CTX* check) {
  const X509* const shown = X509_STORE_CTX_get0_cert(check);
  const X509* const current = X509_STORE_CTX_get_current_cert(check);
  const Result<CertificateFacts> facts = facts_of(*shown);
  const std::string whose = facts && facts->identity
                                ? "the certificate of " + facts->identity->text()
                                : "its certificate";
  doubt_ =
      whose + " is not accepted: " +
      wrong_with(
          current != nullptr ? *current : *shown, X509_STORE_CTX_get_error(check), credentials_);
}

rpc::Stream::Moved TlsStream::shake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(session_.get());
  if (result != 1) {
    return not_moved(result, errno);
  }
  speaks_ = true;
  return {.bytes = 1};
}

Result<Identity> TlsStream::peer() const {
  const X509* const certificate = SSL_get0_peer_certificate(session_.get());
  HEDDLE_CHECK(certificate != nullptr);
  const Result<CertificateFacts> facts = facts_of(*certificate);
  if (facts && facts->identity) {
    return *facts->identity;
  }
  return Error{.code = Code::kFailedPrecondition,
               .message = facts ? "the certificate is an authority's; want that of a process"
                                : facts.error().message};
}

/// After a call that has moved nothing: what to wait for, or the end.
rpc::Stream::Moved TlsStream::not_moved(int result, int system_error) {
  const unsigned long first = ERR_peek_error();
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {.until = Socket::wait_read};
    case SSL_ERROR_WANT_WRITE:
      return {.until = Socket::wait_write};
    case SSL_ERROR_ZERO_RETURN:
      return {.end = Error{Code::kUnavailable, "the peer has closed the link"}};
    case SSL_ERROR_SYSCALL:
      return {.end = cut(system_error != 0 ? std::strerror(system_error) : "the peer has gone")};
    default:
      speaks_ = false;
      if (doubt_) {
        return {.end = Error{Code::kFailedPrecondition, *doubt_}};
      }
      return {.end = tls_error(first)};
  }
}

rpc::Stream::Moved TlsStream::send(std::span<const std::byte> head,
                                   std::string_view body,
                                   std::span<const Descriptor> descriptors) {
  HEDDLE_CHECK(descriptors.empty());
  const char* bytes = body.data();
  std::size_t size = std::min(body.size(), kRecordBytes);
  if (!head.empty()) {
    size = std::min(head.size() + body.size(), kRecordBytes);
    std::memcpy(record_.data(), head.data(), head.size());
    std::memcpy(record_.data() + head.size(), body.data(), size - head.size());
    bytes = record_.data();
  }
  ERR_clear_error();
  const int sent = SSL_write(session_.get(), bytes, static_cast<int>(size));
  return sent > 0 ? Moved{.bytes = static_cast<std::size_t>(sent)} : not_moved(sent, errno);
}

rpc::Stream::Moved TlsStream::receive(std::span<std::byte> buffer, rpc::FrameDecoder& /*decoder*/) {
  Moved moved;
  // With room for a whole record nothing of it stays with OpenSSL, where no socket would tell of
  // it.
  while (buffer.size() - moved.bytes >= kRecordBytes) {
    const std::span<std::byte> room = buffer.subspan(moved.bytes);
    ERR_clear_error();
    const int got = SSL_read(session_.get(), room.data(), static_cast<int>(room.size()));
    if (got <= 0) {
      const Moved stopped = not_moved(got, errno);
      moved.end = stopped.end;
      moved.until = stopped.until;
      break;
    }
    moved.bytes += static_cast<std::size_t>(got);
  }
  return moved;
}

void TlsStream::close() {
  if (std::exchange(speaks_, false)) {
    ERR_clear_error();
    (void)SSL_shutdown(session_.get());  // The peer learns that nothing was cut off, if it can be.
    ERR_clear_error();
  }
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace heddle::net
