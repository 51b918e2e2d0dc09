#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::gateway {

/// An external engine, on loopback, which does to each request what a test says. Each of
/// its connections has a thread.
class FakeEngine {
 public:
  /// A connection, as its script sees it.
  class Peer {
   public:
    explicit Peer(int socket) : socket_(socket) {}
    /// False when the other side has hung up.
    bool send(std::string_view bytes) const {
      while (!bytes.empty()) {
        const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
          return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      }
      return true;
    }
    /// A whole answer with a Content-Length.
    bool answer(std::string_view body,
                const std::string& headers = "Content-Type: application/json\r\n",
                const std::string& status = "200 OK") const {
      return send("HTTP/1.1 " + status + "\r\n" + headers + "Content-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
    }
    /// Whether the other side hangs up within ten seconds, having said nothing more.
    [[nodiscard]] bool hung_up() const {
      char byte = 0;
      pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
      return ::poll(&wait, 1, 10'000) == 1 && ::recv(socket_, &byte, 1, 0) <= 0;
    }
    /// The connection breaks, as when a process is killed with bytes unread.
    void reset() const {
      const linger hard{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }

   private:
    int socket_;
  };

  /// Answers the request with this head and body; false closes the connection.
  using Script = std::function<bool(const Peer& peer, const std::string& request)>;

  explicit FakeEngine(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);  // As the calls want it.
    if (::bind(listener_, plain, size) != 0 || ::listen(listener_, 128) != 0 ||
        ::getsockname(listener_, plain, &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { accept(); });
  }
  ~FakeEngine() {
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    close_connections();
    for (std::thread& thread : threads_) {
      thread.join();
    }
    for (const int socket : sockets_) {
      ::close(socket);
    }
  }
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Connections that were accepted.
  [[nodiscard]] int connections() const { return connections_; }
  /// The requests so far, head and body.
  [[nodiscard]] std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  /// Closes all connections, as an engine does with those that idle.
  void close_connections() {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) {
      ::shutdown(socket, SHUT_RDWR);
    }
  }

 private:
  void accept() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) {
        return;
      }
      ++connections_;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    const Peer peer(socket);
    std::string buffer;
    for (bool open = true; open;) {
      std::string request = read_request(socket, buffer);
      if (request.empty()) {
        break;
      }
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      open = script_(peer, request);
    }
    const std::lock_guard lock(mutex_);
    std::erase(sockets_, socket);
    ::close(socket);
  }

  static std::string read_request(int socket, std::string& buffer) {
    std::size_t whole = std::string::npos;
    while (buffer.size() < whole) {
      const std::size_t head_end = buffer.find("\r\n\r\n");
      if (whole == std::string::npos && head_end != std::string::npos) {
        const std::size_t length = buffer.find("Content-Length: ");
        whole = head_end + 4;
        whole += length < head_end ? std::strtoul(buffer.c_str() + length + 16, nullptr, 10) : 0;
        continue;
      }
      char bytes[65536];
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
      if (got <= 0) {
        return {};
      }
      buffer.append(bytes, static_cast<std::size_t>(got));
    }
    std::string request = buffer.substr(0, whole);
    buffer.erase(0, whole);
    return request;
  }

  Script script_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_ = 0;
  std::thread accepter_{};
  std::mutex mutex_{};
  std::vector<int> sockets_{};
  std::vector<std::thread> threads_{};
  std::vector<std::string> requests_{};
};

}  // namespace heddle::gateway
