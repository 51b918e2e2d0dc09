#include "gateway/peer_connection.h"

#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

namespace heddle::gateway {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr std::size_t kReadBytes = 65536;
constexpr Duration kSendTimeout = std::chrono::seconds(30);

}  // namespace

Result<std::shared_ptr<ssl::context>> peer_tls(const config::PeerConfig& peer) {
  auto tls = std::make_shared<ssl::context>(ssl::context::tls_client);
  ErrorCode failure;
  if (peer.ca.empty()) {
    tls->set_default_verify_paths(failure);
  } else {
    tls->load_verify_file(peer.ca, failure);
  }
  if (!failure) {
    tls->set_verify_mode(ssl::verify_peer, failure);
  }
  if (failure) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "read certificates of \"" + peer.ca + "\": " + failure.message()};
  }
  return tls;
}

PeerConnection::PeerConnection(asio::io_context& loop,
                               const config::PeerConfig& peer,
                               std::shared_ptr<ssl::context> tls)
    : loop_(loop), peer_(peer), tls_(std::move(tls)), socket_(loop), deadline_(loop, [this] {
        late_ = true;
        ErrorCode ignored;
        socket_.close(ignored);
      }) {}

void PeerConnection::close() {
  closed_ = true;
  deadline_.clear();
  ErrorCode ignored;
  socket_.close(ignored);
}

Error PeerConnection::failed(const std::string& doing, const ErrorCode& why) const {
  const std::string what = doing + " the peer \"" + peer_.name + "\": ";
  if (closed_) {
    return {.code = Code::kCancelled, .message = what + "it was given up"};
  }
  if (late_) {
    return {.code = Code::kDeadlineExceeded, .message = what + "it took too long"};
  }
  return {.code = Code::kUnavailable, .message = what + why.message()};
}

Task<Result<void>> PeerConnection::open() {
  deadline_.set(peer_.connect_timeout);
  Result<void> done = co_await connect();
  if (done && tls_ != nullptr) {
    deadline_.set(peer_.tls_timeout);
    done = co_await shake_hands();
  }
  deadline_.clear();
  co_return done;
}

Task<Result<void>> PeerConnection::connect() {
  tcp::resolver resolver(loop_);
  const std::string port = std::to_string(peer_.address.port);
  const auto [unknown, found] = co_await resolver.async_resolve(peer_.address.host, port, kAwait);
  if (unknown || late_ || closed_) {
    co_return failed("find", unknown);
  }
  const auto [refused, endpoint] = co_await asio::async_connect(socket_, found, kAwait);
  if (refused || late_ || closed_) {
    co_return failed("connect to", refused);
  }
  ErrorCode ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  co_return Result<void>();
}

Task<Result<void>> PeerConnection::shake_hands() {
  secured_.emplace(socket_, *tls_);
  SSL* const session = secured_->native_handle();
  ErrorCode is_name;
  asio::ip::make_address(peer_.address.host, is_name);
  if (is_name) {  // Which of its certificates it is to show.
    (void)SSL_set_tlsext_host_name(session, peer_.address.host.c_str());
  }
  secured_->set_verify_callback(ssl::host_name_verification(peer_.address.host));
  const auto [refused] = co_await secured_->async_handshake(ssl::stream_base::client, kAwait);
  const long doubt = SSL_get_verify_result(session);
  if (refused && doubt != X509_V_OK) {
    co_return Error{
        .code = Code::kFailedPrecondition,
        .message = "connect to the peer \"" + peer_.name +
                   "\": its certificate is not trusted: " + X509_verify_cert_error_string(doubt)};
  }
  if (refused || late_ || closed_) {
    co_return failed("speak TLS with", refused);
  }
  co_return Result<void>();
}

Task<Result<void>> PeerConnection::write(std::string bytes) {
  deadline_.set(kSendTimeout);
  ErrorCode failure;
  if (secured_) {
    const auto [why, sent] = co_await asio::async_write(*secured_, asio::buffer(bytes), kAwait);
    failure = why;
  } else {
    const auto [why, sent] = co_await asio::async_write(socket_, asio::buffer(bytes), kAwait);
    failure = why;
  }
  deadline_.clear();
  if (failure || late_ || closed_) {
    co_return failed("write to", failure);
  }
  co_return Result<void>();
}

Task<Result<std::string>> PeerConnection::read(Duration patience) {
  std::string bytes(kReadBytes, '\0');
  deadline_.set(patience);
  ErrorCode failure;
  std::size_t count = 0;
  if (secured_) {
    const auto [why, got] = co_await secured_->async_read_some(asio::buffer(bytes), kAwait);
    failure = why;
    count = got;
  } else {
    const auto [why, got] = co_await socket_.async_read_some(asio::buffer(bytes), kAwait);
    failure = why;
    count = got;
  }
  deadline_.clear();
  bytes.resize(count);
  // Of TLS this is an end that the peer has said; one that it has not is a failure.
  const bool ended = failure == asio::error::eof && !late_ && !closed_;
  if ((failure && !ended) || late_ || closed_) {
    co_return failed("read from", failure);
  }
  co_return bytes;
}

}  // namespace heddle::gateway
