#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/time.h"
#include "config/config.h"
#include "gateway/tls_files.h"

namespace heddle::gateway {

using namespace std::chrono_literals;

/// Speaks TLS with clients, for a server that knows nothing of it: what a client sends comes out of
/// one end of a pair of local sockets, and what goes in there is sent to the client. Bytes, their
/// ends, hang-ups and full buffers are passed on both ways. Loop thread.
class TlsFront {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  /// Gets the server's end of a client whose handshake is done, which does not block, and the
  /// client's address. Closing it closes the client's connection once all has been sent.
  using Taker = std::function<void(Socket server_end, std::string peer)>;

  struct Options {
    Duration handshake_timeout = 15s;  ///< From accepting a client to the end of its handshake.
    Duration stall_timeout = 30s;      ///< A client that takes nothing.
    Duration files_interval = 1min;    ///< Between looks at the files of the certificate.
    std::size_t handshakes_max = 512;  ///< At once; with one more, the oldest is given up.
  };

  /// `closed` is told when a client has gone.
  TlsFront(boost::asio::io_context& loop,
           TlsFiles files,
           const Options& options,
           Taker take,
           std::function<void()> closed);
  /// Closes everything at once.
  ~TlsFront();
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;

  /// Begins the handshake of a client that has just been accepted; its socket does not block.
  void accept(Socket client);

  /// As TlsFiles::reload, for clients that come later.
  void reload(config::TlsConfig files);

  /// Clients whom the server does not have: in their handshake, or still to be sent what it left.
  [[nodiscard]] std::size_t alone() const;
  /// Whether there is no client at all: everything that the server has sent has gone.
  [[nodiscard]] bool empty() const;

  /// Gives up the handshakes that are under way.
  void drain();
  /// Closes all connections at once, whatever is still to be sent.
  void close();

 private:
  class Relay;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::gateway
