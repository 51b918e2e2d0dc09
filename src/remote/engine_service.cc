#include "remote/engine_service.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "remote/caller.h"
#include "remote/carried_stream.h"
#include "remote/stream_messages.h"

namespace heddle::remote {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

using GatewayId = Id<struct GatewayLinkTag>;

/// An engine that is being connected to. The owner may forget it at any time.
struct Connecting {
  explicit Connecting(const asio::any_io_executor& executor)
      : resolver(executor), socket(executor) {}
  void cancel() {
    ErrorCode ignored;
    resolver.cancel();
    socket.close(ignored);
  }

  tcp::resolver resolver;
  tcp::socket socket;
};

}  // namespace

class EngineService::Impl : public std::enable_shared_from_this<EngineService::Impl> {
 public:
  Impl(asio::any_io_executor executor, const host::HostPort& port, const StreamOptions& options)
      : executor_(std::move(executor)), port_(port), options_(options) {}

  void close() { gateways_.clear(); }

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (peer.identity.role != net::Role::kGateway) {
      link->end("links for engines are a gateway's");
      return;
    }
    for (const auto& [other, gateway] : gateways_) {
      if (gateway.caller->peer().identity == peer.identity) {
        gateway.caller->end("another link of " + peer.identity.text() + " replaces this one");
        gateways_.erase(other);
        break;
      }
    }
    const GatewayId id{++links_given_};
    Gateway& gateway = gateways_[id];
    gateway.caller = std::make_unique<Caller>(
        executor_,
        std::move(link),
        peer,
        Caller::Handlers{
            .on_message = [this, id](const std::string& payload) { return hear(id, payload); },
            .on_gone =
                [this, id](const Error& why) {
                  log::warning("link for engines has ended", {{"why", why.message}});
                  gateways_.erase(id);
                },
            .on_drained = [this, id] { resume(id); }},
        options_.queued_most);
  }

  [[nodiscard]] std::optional<Instant> silent_since(ModelId model) const {
    std::optional<Instant> since;
    for (const auto& [id, gateway] : gateways_) {
      for (const auto& [stream_id, stream] : gateway.streams) {
        if (stream.model == model && stream.asked) {
          since = std::max(since.value_or(Instant{}), stream.heard);
        }
      }
    }
    return since;
  }

 private:
  struct Stream {
    ModelId model{};
    std::shared_ptr<Connecting> connecting{};  ///< Until it is connected.
    std::unique_ptr<CarriedStream> carried{};
    bool asked = false;  ///< Somebody waits for an answer.
    Instant heard{};     ///< When something was last sent, by either side.

    Stream() = default;
    Stream(Stream&&) = default;
    Stream& operator=(Stream&&) = default;
    ~Stream() {
      if (connecting) {
        connecting->cancel();
      }
    }
  };
  /// A gateway's link, and what goes over it.
  struct Gateway {
    std::map<StreamId, Stream> streams{};
    StreamId last{};                   ///< Streams are numbered upwards.
    std::unique_ptr<Caller> caller{};  ///< Ends first.
  };

  void tell(GatewayId id, const FromEngines& message) {
    if (const auto found = gateways_.find(id); found != gateways_.end()) {
      found->second.caller->send(encode(message));
    }
  }

  /// Null where it has ended.
  Stream* find(GatewayId id, StreamId stream) {
    const auto gateway = gateways_.find(id);
    if (gateway == gateways_.end()) {
      return nullptr;
    }
    const auto found = gateway->second.streams.find(stream);
    return found == gateway->second.streams.end() ? nullptr : &found->second;
  }

  void end(GatewayId id, StreamId stream, std::optional<Error> why) {
    tell(id, StreamEnded{.stream = stream, .error = std::move(why)});
    if (const auto gateway = gateways_.find(id); gateway != gateways_.end()) {
      gateway->second.streams.erase(stream);
    }
  }

  /// The link has room again.
  void resume(GatewayId id) {
    for (auto& [stream_id, stream] : gateways_.at(id).streams) {
      stream.carried->resume();
    }
  }

  // ---- What a gateway says ----

  Result<void> hear(GatewayId id, const std::string& payload) {
    Result<ToEngines> message = decode_to_engines(payload);
    if (!message) {
      return message.error();
    }
    return std::visit([this, id](auto& said) { return take(id, said); }, *message);
  }

  Result<void> take(GatewayId id, const OpenStream& open) {
    Gateway& gateway = gateways_.at(id);
    if (open.stream <= gateway.last) {
      return Error{.code = Code::kCorrupt,
                   .message = "stream " + std::to_string(open.stream.value()) + " comes after " +
                              std::to_string(gateway.last.value()) + "; want a greater number"};
    }
    gateway.last = open.stream;
    const std::optional<HttpAddress> address = port_.engine_address(open.model);
    if (!address || gateway.streams.size() >= options_.streams_most) {
      end(id,
          open.stream,
          address ? Error{.code = Code::kResourceExhausted,
                          .message = "the gateway has " + std::to_string(options_.streams_most) +
                                     " connections to engines of this host, the most it may have"}
                  : Error{.code = Code::kNotFound,
                          .message = "the host has no engine of model " +
                                     std::to_string(open.model.value())});
      return {};
    }
    Stream& stream = gateway.streams[open.stream];
    stream.model = open.model;
    stream.carried = carry(id, open.stream);
    connect(id, open.stream, stream, *address);
    return {};
  }
  Result<void> take(GatewayId id, StreamBytes& piece) {
    Stream* stream = find(id, piece.stream);
    if (stream == nullptr) {
      return {};
    }
    stream->asked = true;
    stream->heard = steady_now();
    return stream->carried->put(std::move(piece.bytes));
  }
  Result<void> take(GatewayId id, const StreamTaken& taken) {
    Stream* stream = find(id, taken.stream);
    return stream == nullptr ? Result<void>() : stream->carried->taken(taken.bytes);
  }
  Result<void> take(GatewayId id, const StreamIdle& idle) {
    if (Stream* stream = find(id, idle.stream)) {
      stream->asked = false;
    }
    return {};
  }
  Result<void> take(GatewayId id, const StreamEnded& ended) {
    gateways_.at(id).streams.erase(ended.stream);
    return {};
  }

  // ---- Engines ----

  std::unique_ptr<CarriedStream> carry(GatewayId id, StreamId stream) {
    return std::make_unique<CarriedStream>(CarriedStream::Handlers{
        .on_bytes =
            [this, id, stream](std::string bytes) {
              find(id, stream)->heard = steady_now();
              tell(id, StreamBytes{.stream = stream, .bytes = std::move(bytes)});
            },
        .on_taken =
            [this, id, stream](std::uint64_t bytes) {
              tell(id, StreamTaken{.stream = stream, .bytes = bytes});
            },
        .on_ended =
            [this, id, stream](std::optional<Error> why) { end(id, stream, std::move(why)); },
        .has_room =
            [this, id] { return gateways_.at(id).caller->queued_bytes() < options_.queued_full; }});
  }

  void connect(GatewayId id, StreamId stream_id, Stream& stream, const HttpAddress& address) {
    stream.connecting = std::make_shared<Connecting>(executor_);
    // Whoever is told keeps what is being connected alive, and nothing else.
    const auto connected = [weak = weak_from_this(), id, stream_id, address](
                               const std::shared_ptr<Connecting>& connecting,
                               const ErrorCode& failure) {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->connected(id, stream_id, address, *connecting, failure);
      }
    };
    stream.connecting->resolver.async_resolve(
        address.host,
        std::to_string(address.port),
        [connecting = stream.connecting, connected](const ErrorCode& failure,
                                                    const tcp::resolver::results_type& found) {
          if (failure) {
            return connected(connecting, failure);
          }
          asio::async_connect(
              connecting->socket,
              found,
              [connecting, connected](const ErrorCode& refused, const tcp::endpoint& /*where*/) {
                connected(connecting, refused);
              });
        });
  }

  void connected(GatewayId id,
                 StreamId stream_id,
                 const HttpAddress& address,
                 Connecting& connecting,
                 const ErrorCode& failure) {
    Stream* stream = find(id, stream_id);
    if (stream == nullptr) {
      return;
    }
    if (failure) {
      end(id,
          stream_id,
          Error{.code = Code::kUnavailable,
                .message =
                    "connect to the engine at " + address.authority() + ": " + failure.message()});
      return;
    }
    ErrorCode ignored;
    connecting.socket.set_option(tcp::no_delay(true), ignored);
    tell(id,
         StreamOpened{.stream = stream_id,
                      .host = address.host,
                      .port = address.port,
                      .base_path = address.base_path});
    stream->carried->begin(CarriedStream::Socket(std::move(connecting.socket)));
    stream->connecting.reset();
  }

  asio::any_io_executor executor_;
  const host::HostPort& port_;
  const StreamOptions options_;
  std::uint64_t links_given_ = 0;
  std::map<GatewayId, Gateway> gateways_{};
};

EngineService::EngineService(asio::any_io_executor executor,
                             const host::HostPort& port,
                             const StreamOptions& options)
    : impl_(std::make_shared<Impl>(std::move(executor), port, options)) {}

EngineService::~EngineService() {
  impl_->close();
}

void EngineService::take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}
std::optional<Instant> EngineService::silent_since(ModelId model) const {
  return impl_->silent_since(model);
}

}  // namespace heddle::remote
