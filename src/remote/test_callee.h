#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "net/connector.h"
#include "net/listener.h"
#include "net/test_cluster.h"
#include "remote/messages.h"
#include "remote/test_host.h"

namespace heddle::remote {

/// A process that listens for a test's gateways and says what it is told to; Said is what it hears.
template <class Said>
class TestCallee : public TestEar<Said> {
 public:
  using TestEar<Said>::heard;
  using TestEar<Said>::ends;
  using Decode = Result<Said> (*)(std::string_view);

  TestCallee(boost::asio::io_context& loop, const net::Self& self, Decode decode)
      : TestEar<Said>(loop),
        listener_(test_listener(
            loop, self, {net::Role::kGateway}, [this, decode](auto link, const net::Peer&) {
              link->start({.on_frame =
                               [this, decode](const rpc::Frame& frame) {
                                 Result<Said> said = decode(frame.payload);
                                 HEDDLE_CHECK(said.has_value());
                                 heard.push_back(std::move(*said));
                               },
                           .on_closed =
                               [this](const Error& error) {
                                 ends.push_back(error.message);
                                 link_.reset();
                               }});
              link_ = std::move(link);
              ++links;
            })) {}

  [[nodiscard]] net::Address address() const {
    return {.host = "127.0.0.1", .port = listener_->port()};
  }
  template <class Message>
  void say(const Message& message) {
    say_bytes(encode(message));
  }
  void say_bytes(std::string bytes) { HEDDLE_CHECK(link_->send(std::move(bytes)).has_value()); }
  /// Until it has so many links, of all there ever were.
  void run_linked(int count) {
    net::run_until(this->loop_, [&] { return links >= count; });
  }
  [[nodiscard]] bool up() const { return link_ != nullptr; }
  /// Ends its link. Another may follow.
  void cut() { link_.reset(); }
  /// Takes no links any more.
  void leave() {
    link_.reset();
    listener_.reset();
  }

  int links = 0;

 private:
  std::unique_ptr<net::HostLink> link_{};
  std::unique_ptr<net::Listener> listener_;
};

/// Tries again at once.
inline net::ConnectorOptions test_connector() {
  return {.backoff = {.first = std::chrono::milliseconds(1),
                      .most = std::chrono::milliseconds(4),
                      .seed = 1}};
}

}  // namespace heddle::remote
