#include "remote/engine_streams.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "remote/carried_stream.h"
#include "remote/stream_messages.h"
#include "rpc/link.h"

#include <sys/socket.h>

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

using Done = std::function<void(std::variant<net::CarriedConnection, net::CarriedEnd>)>;

}  // namespace

class EngineStreams::Impl : public std::enable_shared_from_this<EngineStreams::Impl> {
 public:
  Impl(asio::any_io_executor executor, net::Self self, const StreamOptions& options)
      : executor_(std::move(executor)), self_(std::move(self)), options_(options) {
    self_.use = rpc::LinkUse::kEngines;
  }

  void close() { hosts_.clear(); }

  void set_hosts(const std::vector<HostAddress>& wanted) {
    std::erase_if(hosts_, [&](const auto& entry) {
      return std::ranges::find(wanted, entry.second->where()) == wanted.end();
    });
    for (const HostAddress& where : wanted) {
      std::unique_ptr<Host>& host = hosts_[where.id];
      if (!host) {
        host = std::make_unique<Host>(*this, where);
      }
    }
  }

  void open(HostId id, ModelId model, Done done) {
    if (const auto found = hosts_.find(id); found != hosts_.end()) {
      found->second->open(model, std::move(done));
      return;
    }
    fail(done,
         {.why = {.code = Code::kUnavailable,
                  .message = "there is no host " + std::to_string(id.value())},
          .cut = true});
  }

 private:
  /// From the loop: who asked must not hear of it within the call.
  void fail(const Done& done, const net::CarriedEnd& end) {
    asio::post(executor_, [weak = weak_from_this(), done, end] {
      if (!weak.expired()) {
        done(end);
      }
    });
  }

  /// One host: the link to it, and what goes over that.
  class Host {
   public:
    Host(Impl& owner, HostAddress where) : owner_(owner), where_(std::move(where)) {}
    ~Host() {
      connector_.reset();
      lose("the host is not configured any more");
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    [[nodiscard]] const HostAddress& where() const { return where_; }

    void open(ModelId model, Done done) {
      if (!connector_) {
        connect();
      }
      const StreamId id{++streams_given_};
      Stream& stream = streams_[id];
      stream.model = model;
      stream.done = std::move(done);
      if (up_) {
        tell(OpenStream{.stream = id, .model = model});
      }
    }

    void rest(StreamId id) { tell_of(id, StreamIdle{.stream = id}); }

   private:
    struct Stream {
      ModelId model{};
      Done done{};  ///< Until it is known what has become of it.
      std::unique_ptr<CarriedStream> carried{};
      std::shared_ptr<std::optional<net::CarriedEnd>> end =
          std::make_shared<std::optional<net::CarriedEnd>>();
      bool ended = false;  ///< The host has ended it; the socket has not taken all yet.
    };

    void connect() {
      connector_.emplace(
          owner_.executor_,
          where_.address,
          owner_.self_,
          net::Wanted{.roles = {net::Role::kAgent}, .name = where_.name},
          net::Connector::Handlers{.on_up = [this](const net::Peer& /*host*/) { up(); },
                                   .on_down = [this](const Error& why) { down(why); },
                                   .on_frame = [this](const rpc::Frame& frame) { hear(frame); },
                                   .on_drained = [this] { resume(); }},
          owner_.options_.connector);
    }

    void up() {
      up_ = true;
      for (const auto& [id, stream] : streams_) {
        if (stream.done) {
          tell(OpenStream{.stream = id, .model = stream.model});
        }
      }
    }

    void down(const Error& why) {
      const std::shared_ptr<Impl> keep = owner_.shared_from_this();
      if (std::exchange(up_, false)) {
        log::warning("link for engines has ended", {{"host", where_.name}, {"why", why.message}});
      }
      lose(why.message);
    }

    /// All streams are cut.
    void lose(const std::string& why) {
      const net::CarriedEnd end{
          .why = {.code = Code::kUnavailable, .message = "host " + where_.name + ": " + why},
          .cut = true};
      std::erase_if(streams_, [&](const auto& entry) {
        if (entry.second.done) {
          owner_.fail(entry.second.done, end);
        }
        return entry.second.done != nullptr;
      });
      for (auto& [id, stream] : streams_) {
        if (!stream.ended) {
          *stream.end = end;
          finish(id, stream);
        }
      }
    }

    /// Nothing more comes; what has come goes to the socket still.
    void finish(StreamId id, Stream& stream) {
      stream.ended = true;
      stream.carried->finish([this, id] { streams_.erase(id); });
    }

    void tell(const ToEngines& message) {
      if (!up_) {
        return;
      }
      const std::string payload = encode(message);
      if (connector_->queued_bytes() + payload.size() > owner_.options_.queued_most) {
        connector_->end("it takes too little of what it is sent");
      } else if (const Result<void> sent = connector_->send(payload); !sent) {
        connector_->end(sent.error().message);
      }
    }

    /// The same of a stream that the host has not ended.
    void tell_of(StreamId id, const ToEngines& message) {
      if (const auto found = streams_.find(id); found != streams_.end() && !found->second.ended) {
        tell(message);
      }
    }

    void resume() {
      for (auto& [id, stream] : streams_) {
        if (stream.carried) {
          stream.carried->resume();
        }
      }
    }

    // ---- What the host says ----

    void hear(const rpc::Frame& frame) {
      const std::shared_ptr<Impl> keep = owner_.shared_from_this();
      Result<FromEngines> message = decode_from_engines(frame.payload);
      const Result<void> good =
          message ? std::visit([this](auto& said) { return take(said); }, *message)
                  : message.error();
      if (!good) {
        connector_->end(good.error().message);
      }
    }

    /// Null where this end has ended it.
    Stream* find(StreamId id) {
      const auto found = streams_.find(id);
      return found == streams_.end() ? nullptr : &found->second;
    }

    Result<void> take(const StreamOpened& opened) {
      Stream* stream = find(opened.stream);
      if (stream == nullptr) {
        return {};
      }
      if (!stream->done) {
        return twice(opened.stream);
      }
      const Done done = std::exchange(stream->done, nullptr);
      auto sockets = rpc::socket_pair();
      if (!sockets) {
        tell(StreamEnded{.stream = opened.stream});
        streams_.erase(opened.stream);
        done(net::CarriedEnd{.why = sockets.error()});
        return {};
      }
      stream->carried = carry(opened.stream);
      stream->carried->begin(CarriedStream::Socket(
          owner_.executor_, asio::generic::stream_protocol(AF_UNIX, 0), sockets->first.release()));
      done(net::CarriedConnection{
          .socket = std::move(sockets->second),
          .address = {.host = opened.host, .port = opened.port, .base_path = opened.base_path},
          .end = stream->end,
          .idle = [weak = owner_.weak_from_this(), host = where_.id, id = opened.stream] {
            if (const std::shared_ptr<Impl> owner = weak.lock()) {
              owner->rest(host, id);
            }
          }});
      return {};
    }
    Result<void> take(StreamBytes& piece) {
      Stream* stream = find(piece.stream);
      if (stream == nullptr) {
        return {};
      }
      return stream->carried && !stream->ended ? stream->carried->put(std::move(piece.bytes))
                                               : misplaced(piece.stream);
    }
    Result<void> take(const StreamTaken& taken) {
      Stream* stream = find(taken.stream);
      if (stream == nullptr) {
        return {};
      }
      return stream->carried && !stream->ended ? stream->carried->taken(taken.bytes)
                                               : misplaced(taken.stream);
    }
    Result<void> take(const StreamEnded& ended) {
      Stream* stream = find(ended.stream);
      if (stream == nullptr) {
        return {};
      }
      if (stream->ended) {
        return twice(ended.stream);
      }
      const net::CarriedEnd end{
          .why = ended.error.value_or(
              Error{.code = Code::kUnavailable, .message = "the engine closed the connection"})};
      if (stream->done) {
        const Done done = std::move(stream->done);
        streams_.erase(ended.stream);
        done(end);
        return {};
      }
      if (ended.error) {
        *stream->end = end;
      }
      finish(ended.stream, *stream);
      return {};
    }

    [[nodiscard]] static Error twice(StreamId id) {
      return {.code = Code::kCorrupt,
              .message = "it opens or ends stream " + std::to_string(id.value()) + " twice"};
    }
    [[nodiscard]] static Error misplaced(StreamId id) {
      return {.code = Code::kCorrupt,
              .message = "it speaks over stream " + std::to_string(id.value()) +
                         " before it has opened it, or after it has ended it"};
    }

    // ---- Sockets ----

    std::unique_ptr<CarriedStream> carry(StreamId id) {
      return std::make_unique<CarriedStream>(CarriedStream::Handlers{
          .on_bytes =
              [this, id](std::string bytes) {
                tell_of(id, StreamBytes{.stream = id, .bytes = std::move(bytes)});
              },
          .on_taken =
              [this, id](std::uint64_t bytes) {
                tell_of(id, StreamTaken{.stream = id, .bytes = bytes});
              },
          .on_ended =
              [this, id](const std::optional<Error>& /*why*/) {
                tell_of(id, StreamEnded{.stream = id});
                streams_.erase(id);
              },
          .has_room =
              [this] { return up_ && connector_->queued_bytes() < owner_.options_.queued_full; }});
    }

    Impl& owner_;
    const HostAddress where_;
    bool up_ = false;
    std::uint64_t streams_given_ = 0;  ///< Upwards, whatever link they are for.
    std::map<StreamId, Stream> streams_{};
    std::optional<net::Connector> connector_{};
  };

  void rest(HostId id, StreamId stream) {
    if (const auto found = hosts_.find(id); found != hosts_.end()) {
      found->second->rest(stream);
    }
  }

  asio::any_io_executor executor_;
  net::Self self_;
  const StreamOptions options_;
  std::map<HostId, std::unique_ptr<Host>> hosts_{};
};

EngineStreams::EngineStreams(asio::any_io_executor executor,
                             net::Self self,
                             const StreamOptions& options)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(self), options)) {}

EngineStreams::~EngineStreams() {
  impl_->close();
}

void EngineStreams::set_hosts(const std::vector<HostAddress>& hosts) {
  impl_->set_hosts(hosts);
}
void EngineStreams::open(
    HostId host,
    ModelId model,
    std::function<void(std::variant<net::CarriedConnection, net::CarriedEnd>)> done) {
  impl_->open(host, model, std::move(done));
}

}  // namespace heddle::remote
