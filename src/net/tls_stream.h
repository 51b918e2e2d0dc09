#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "base/result.h"
#include "net/credentials.h"
#include "rpc/stream.h"

struct ssl_st;
struct x509_store_ctx_st;

namespace heddle::net {

/// Which end of a connection a process is.
enum class Side : std::uint8_t { kConnects, kAccepts };

/// TLS over a connected TCP socket. Before anything else shake() must have come to its end.
class TlsStream final : public rpc::Stream {
 public:
  /// @param credentials  Outlive the stream.
  TlsStream(boost::asio::ip::tcp::socket socket, Side side, Credentials& credentials);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// Takes the handshake on. `bytes` is 1 when it is done. Its end says what was wrong: with the
  /// peer's certificate, or, in the peer's eyes, with ours. Ours may be refused after it is done,
  /// too; then receive() says so.
  Moved shake();
  /// Whom the peer's certificate names. kFailedPrecondition where that is nobody of a cluster.
  [[nodiscard]] Result<Identity> peer() const;

  Socket& socket() override { return socket_; }
  [[nodiscard]] bool carries_descriptors() const override { return false; }
  Moved send(std::span<const std::byte> head,
             std::string_view body,
             std::span<const Descriptor> descriptors) override;
  Moved receive(std::span<std::byte> buffer, rpc::FrameDecoder& decoder) override;
  void close() override;

 private:
  static int verify(int good, x509_store_ctx_st* check);
  void doubt(x509_store_ctx_st* check);
  Moved not_moved(int result, int system_error);

  Socket socket_;
  Credentials& credentials_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  std::vector<char> record_;            ///< A frame's head with what follows it, to be sent as one.
  std::optional<std::string> doubt_{};  ///< What is wrong with the peer's certificate.
  bool speaks_ = false;                 ///< The handshake is done, and nothing was wrong since.
};

}  // namespace heddle::net
