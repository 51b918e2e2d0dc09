#pragma once

// For tests only: a source in memory, environments, and a server that says what a test wants.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/thread.h"
#include "fetch/digest.h"
#include "fetch/source.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace heddle::fetch {

inline store::Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : std::nullopt;
  };
}

/// Options under which nothing is waited for.
inline SourceOptions quick() {
  return {
      .http = {.stall_timeout = std::chrono::seconds(1)},
      .retry = {
          .tries = 3, .first = std::chrono::milliseconds(1), .most = std::chrono::milliseconds(2)}};
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// Bytes that differ from place to place.
inline std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    text[i] = static_cast<char>((i * 2654435761U) >> 13U);
  }
  return text;
}

/// Objects in memory.
class TestSource final : public Source {
 public:
  std::map<std::string, std::string> contents{};
  bool with_digests = true;
  bool ignores_ranges = false;
  /// Asked before each read; its error is the read's.
  std::function<Result<void>(const Object&, Range)> before = [](const Object&, Range) {
    return Result<void>();
  };
  std::atomic<int> reads = 0;

  [[nodiscard]] Object object(const std::string& name) const {
    const std::string& text = contents.at(name);
    return {.name = name,
            .url = name,
            .bytes = text.size(),
            .sha256 = with_digests ? sha256_of(text) : "",
            .validator = "\"" + sha256_of(text).substr(0, 8) + "\""};
  }
  Result<Listing> list(const std::stop_token& /*stop*/) override {
    Listing listing;
    for (const auto& [name, text] : contents) {
      listing.objects.push_back(object(name));
    }
    return listing;
  }
  Result<void> read(const Object& object,
                    Range range,
                    const Sink& sink,
                    const std::stop_token& stop) override {
    ++reads;
    if (const Result<void> may = before(object, range); !may) {
      return may;
    }
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    const std::string& text = contents.at(object.name);
    if (ignores_ranges && range.bytes() != text.size()) {
      return Error{Code::kFailedPrecondition, std::string(kIgnoresRanges)};
    }
    const std::vector<std::byte> bytes = bytes_of(text.substr(range.begin, range.bytes()));
    return sink(range.begin, bytes);
  }
};

/// Serves HTTP on loopback, one request a connection: says what `answer` makes of a request's head;
/// what is empty is never answered.
class TestServer {
 public:
  using Answer = std::function<std::string(const std::string& head)>;

  explicit TestServer(Answer answer)
      : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    HEDDLE_CHECK(::bind(listener_.get(), plain, size) == 0);
    HEDDLE_CHECK(::listen(listener_.get(), 16) == 0);
    HEDDLE_CHECK(::getsockname(listener_.get(), plain, &size) == 0);
    port_ = ntohs(address.sin_port);
    Result<Thread> thread = Thread::start({.name = "server"}, [this] { serve(); });
    HEDDLE_CHECK(thread.has_value());
    thread_ = std::move(thread).value();
  }
  ~TestServer() { over_ = true; }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  /// The heads of all requests so far.
  [[nodiscard]] std::vector<std::string> heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void serve() {
    while (!over_) {
      pollfd waiting{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) > 0) {
        Descriptor client(::accept(listener_.get(), nullptr, nullptr));
        talk(std::move(client));
      }
    }
  }
  void talk(Descriptor client) {
    std::string head;
    std::array<char, 4096> buffer{};
    while (head.find("\r\n\r\n") == std::string::npos) {
      const ::ssize_t got = ::recv(client.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        return;
      }
      head.append(buffer.data(), static_cast<std::size_t>(got));
    }
    {
      const std::lock_guard lock(mutex_);
      heard_.push_back(head);
    }
    const std::string said = answer_(head);
    if (said.empty()) {
      silent_.push_back(std::move(client));
      return;
    }
    (void)::send(client.get(), said.data(), said.size(), MSG_NOSIGNAL);
    (void)::shutdown(client.get(), SHUT_WR);
    while (::recv(client.get(), buffer.data(), buffer.size(), 0) > 0) {
    }
  }

  Answer answer_;
  Descriptor listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_{};
  std::vector<std::string> heard_{};
  std::vector<Descriptor> silent_{};
  std::atomic<bool> over_ = false;
  Thread thread_{};  ///< Ends before the rest.
};

/// An answer with this body.
inline std::string said(const std::string& status,
                        const std::string& body,
                        const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

/// The range that a request asks for; all of `bytes` where it asks for none.
inline Range asked_range(const std::string& head, std::uint64_t bytes) {
  constexpr std::string_view kName = "Range: bytes=";
  const std::size_t at = head.find(kName);
  if (at == std::string::npos || head.substr(at - 3, 3) == "If-") {
    return {0, bytes};
  }
  const std::string text = head.substr(at + kName.size());
  return {std::stoull(text), std::stoull(text.substr(text.find('-') + 1)) + 1};
}

/// What a server with ranges says of a content.
inline std::string said_range(const std::string& head,
                              const std::string& content,
                              const std::string& headers = "") {
  const Range range = asked_range(head, content.size());
  if (range.bytes() == content.size()) {
    return said("200 OK", content, headers);
  }
  return said("206 Partial Content",
              content.substr(range.begin, range.bytes()),
              headers + "Content-Range: bytes " + std::to_string(range.begin) + "-" +
                  std::to_string(range.end - 1) + "/" + std::to_string(content.size()) + "\r\n");
}

}  // namespace heddle::fetch
