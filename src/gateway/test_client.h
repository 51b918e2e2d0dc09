#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace heddle::gateway {

/// What a server sent.
struct TestResponse {
  int status = 0;
  std::map<std::string, std::string> headers{};  ///< Names in lower case.
  std::string body{};                            ///< Chunks put together.
};

/// A blocking HTTP client for tests, which can also do what clients should not. Reads give up after
/// ten seconds, so that a broken server fails a test instead of stopping it.
class TestClient {
 public:
  explicit TestClient(std::uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_,
                           reinterpret_cast<const sockaddr*>(&address),  // As the call wants it.
                           sizeof address) == 0;
  }
  virtual ~TestClient() { hang_up(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void hang_up() {
    if (socket_ >= 0) {
      ::close(std::exchange(socket_, -1));
    }
  }

  /// False when the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = write_some(bytes);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Sends one request and reads its answer.
  TestResponse call(const std::string& method,
                    const std::string& path,
                    const std::string& body = {},
                    const std::string& headers = {}) {
    send(request(method, path, body, headers));
    return read(method != "HEAD");
  }

  [[nodiscard]] static std::string request(const std::string& method,
                                           const std::string& path,
                                           const std::string& body = {},
                                           const std::string& headers = {}) {
    std::string text = method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers;
    if (!body.empty() || method == "POST") {
      text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return text + "\r\n" + body;
  }

  /// Reads one response; its status is 0 when the connection ended before its head did.
  TestResponse read(bool with_body = true) {
    TestResponse response = read_head();
    if (response.status == 0 || !with_body || response.status == 204) {
      return response;
    }
    if (response.headers.contains("transfer-encoding")) {
      for (std::string chunk = read_chunk(); !chunk.empty(); chunk = read_chunk()) {
        response.body += chunk;
      }
    } else if (response.headers.contains("content-length")) {
      const std::size_t length =
          std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
      while (buffer_.size() < length && fill()) {
      }
      response.body = take(length);
    } else {
      while (fill()) {
      }
      response.body = take(buffer_.size());
    }
    return response;
  }

  TestResponse read_head() {
    TestResponse response;
    while (buffer_.find("\r\n\r\n") == std::string::npos) {
      if (!fill()) {
        return response;
      }
    }
    std::string head = take(buffer_.find("\r\n\r\n") + 4);
    response.status = std::atoi(head.substr(head.find(' ') + 1, 3).c_str());
    for (std::size_t at = head.find("\r\n") + 2; head.compare(at, 2, "\r\n") != 0;) {
      const std::size_t colon = head.find(':', at);
      const std::size_t end = head.find("\r\n", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) {
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      }
      response.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return response;
  }

  /// What follows on a head: a body of so many bytes, or as many as come.
  std::string read_bytes(std::size_t count) {
    while (buffer_.size() < count && fill()) {
    }
    return take(std::min(count, buffer_.size()));
  }

  /// The next chunk of a chunked body; empty at its end, or when the connection ends.
  std::string read_chunk() {
    while (buffer_.find("\r\n") == std::string::npos) {
      if (!fill()) {
        return {};
      }
    }
    const std::string line = take(buffer_.find("\r\n") + 2);
    const std::size_t length = std::strtoul(line.c_str(), nullptr, 16);
    while (buffer_.size() < length + 2 && fill()) {
    }
    std::string chunk = take(length + 2);
    chunk.resize(chunk.size() < 2 ? 0 : chunk.size() - 2);
    return chunk;
  }

  /// Takes some of what the server sends; how much came.
  std::size_t read_some(std::size_t most) {
    std::string bytes(most, '\0');
    const ssize_t got = ::recv(socket_, bytes.data(), most, 0);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  /// Whether the server closes the connection, with nothing more to say.
  bool closed() { return buffer_.empty() && !fill(); }

 protected:
  [[nodiscard]] int socket() const { return socket_; }
  /// How the bytes travel: the number that went or came, 0 or less at the end.
  virtual ssize_t write_some(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  virtual ssize_t read_some(char* bytes, std::size_t most) {
    return ::recv(socket_, bytes, most, 0);
  }

 private:
  bool fill() {
    char bytes[16384];
    const ssize_t got = read_some(bytes, sizeof bytes);
    if (got <= 0) {
      return false;
    }
    buffer_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  std::string take(std::size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  int socket_;
  bool connected_ = false;
  std::string buffer_{};
};

}  // namespace heddle::gateway
