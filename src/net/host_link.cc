#include "net/host_link.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <variant>

#include <boost/asio/steady_timer.hpp>

#include "base/units.h"
#include "rpc/greet_fields.h"

namespace heddle::net {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

namespace {

/// Text of the peer, for logs.
std::string printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string text_of(const asio::ip::tcp::socket& socket) {
  ErrorCode gone;
  const asio::ip::tcp::endpoint end = socket.remote_endpoint(gone);
  const std::string host = end.address().to_string();
  return (end.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(end.port());
}

std::string text_of(const Wanted& wanted) {
  std::string roles;
  for (const Role role : wanted.roles) {
    roles += (roles.empty() ? "" : " or ") + std::string(name(role));
  }
  return wanted.name.empty() ? roles : roles + " \"" + wanted.name + "\"";
}

/// Whether `peer` is one with whom `self` would link.
Result<void> check_peer(const Identity& peer, const Identity& self, const Wanted& wanted) {
  const bool of_role =
      std::find(wanted.roles.begin(), wanted.roles.end(), peer.role) != wanted.roles.end();
  const bool of_name = wanted.name.empty() || wanted.name == peer.name;
  if (peer.cluster == self.cluster && of_role && of_name) {
    return {};
  }
  return Error{.code = Code::kFailedPrecondition,
               .message = peer.text() + " is not wanted here: " + self.text() + " links with " +
                          text_of(wanted) + " of its own cluster"};
}

/// Whether a greeting says of the peer what its certificate says.
Result<void> check_claims(const rpc::Greet& greet, const Identity& peer) {
  const std::string_view role = name(peer.role);
  if (greet.cluster == peer.cluster && greet.role == role && greet.name == peer.name) {
    return {};
  }
  return Error{.code = Code::kFailedPrecondition,
               .message = "the greeting says heddle://" + printable(greet.cluster) + "/" +
                          printable(greet.role) + "/" + printable(greet.name) +
                          ", and the certificate " + peer.uri() + "; want both the same"};
}

}  // namespace

class HostLink::Impl : public std::enable_shared_from_this<HostLink::Impl> {
 public:
  Impl(asio::ip::tcp::socket socket,
       Side side,
       Self self,
       Wanted wanted,
       Opened opened,
       const HostLinkOptions& options)
      : side_(side),
        self_(std::move(self)),
        wanted_(std::move(wanted)),
        opened_(std::move(opened)),
        options_(options),
        timer_(socket.get_executor()) {
    ErrorCode ignored;
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    peer_.address = text_of(socket);
    stream_ = std::make_unique<TlsStream>(std::move(socket), side, *self_.credentials);
    tls_ = stream_.get();
  }

  void begin() {
    after(options_.greeting, [](Impl& self) {
      self.fail(
          {.code = Code::kUnavailable,
           .message = "it has not greeted within " + format_duration(self.options_.greeting)});
    });
    wait_to_shake(side_ == Side::kConnects ? rpc::Stream::Socket::wait_write
                                           : rpc::Stream::Socket::wait_read);
  }

  void start(rpc::Link::Handlers handlers) { handlers_ = std::move(handlers); }

  Result<void> send(std::string payload) {
    HEDDLE_CHECK(!rpc::is_host_message(payload));
    if (state_ != State::kOpen) {
      return Error{.code = Code::kUnavailable, .message = "send a message: the link is not open"};
    }
    said_ = true;
    return link_->send(std::move(payload));
  }

  [[nodiscard]] std::size_t queued_bytes() const { return link_ ? link_->queued_bytes() : 0; }

  /// Says why to a peer that can hear it, and waits a little for its end.
  void leave(std::string why) {
    if (state_ == State::kShaking) {
      return stop();
    }
    if (state_ != State::kGreeting && state_ != State::kOpen) {
      return;
    }
    state_ = State::kLeaving;
    why.resize(std::min(why.size(), rpc::kByeTextMost));
    if (!link_->send(rpc::encode(rpc::Bye{.why = std::move(why)}))) {
      return stop();
    }
    after(options_.farewell, [](Impl& self) { self.stop(); });
  }

 private:
  enum class State : std::uint8_t { kShaking, kGreeting, kOpen, kLeaving, kStopped };

  void after(Duration patience, void (*act)(Impl&)) {
    timer_.expires_after(patience);
    timer_.async_wait([self = shared_from_this(), act, turn = ++turn_](const ErrorCode& stopped) {
      // One whose time has come is not cancelled any more by what comes next.
      if (!stopped && turn == self->turn_) {
        act(*self);
      }
    });
  }

  void stop() {
    state_ = State::kStopped;
    ++turn_;
    timer_.cancel();
    stream_.reset();
    link_.reset();
  }

  // --- The handshake ---

  void wait_to_shake(rpc::Stream::Socket::wait_type until) {
    stream_->socket().async_wait(until, [self = shared_from_this()](const ErrorCode& failure) {
      if (!failure && self->state_ == State::kShaking) {
        self->shake();
      }
    });
  }

  void shake() {
    const rpc::Stream::Moved moved = stream_->shake();
    if (moved.end) {
      return fail(*moved.end);
    }
    if (moved.bytes == 0) {
      return wait_to_shake(moved.until);
    }
    state_ = State::kGreeting;
    // The link is this object's, and calls no handler once it is destroyed.
    link_.emplace(std::move(stream_),
                  rpc::Link::Handlers{.on_frame = [this](rpc::Frame frame) { hear(frame); },
                                      .on_closed = [this](const Error& error) { fail(error); },
                                      .on_drained = [this] { drained(); }},
                  options_.limits);
    if (side_ == Side::kAccepts) {
      greet_first();
    }
  }

  // --- Greeting: whoever accepts speaks first, so that nobody closes what he has not read ---

  void greet_first() {
    if (const Result<void> wanted = check_identity(); !wanted) {
      return refuse(wanted.error());
    }
    greet();
  }

  /// Whether the certificate's owner is wanted.
  Result<void> check_identity() {
    Result<Identity> identity = tls_->peer();
    if (!identity) {
      return identity.error();
    }
    peer_.identity = std::move(*identity);
    return check_peer(peer_.identity, self_.credentials->identity(), wanted_);
  }

  void greet() {
    const Identity& own = self_.credentials->identity();
    const Result<void> sent =
        link_->send(rpc::encode(rpc::Greet{.cluster = own.cluster,
                                           .role = std::string(name(own.role)),
                                           .name = own.name,
                                           .incarnation = self_.incarnation,
                                           .versions = self_.versions,
                                           .build = self_.build,
                                           .isa = self_.isa,
                                           .use = self_.use}));
    HEDDLE_CHECK(sent.has_value());  // The first frame of a link fits its queue.
  }

  void greeted(const rpc::Greet& greet_of_peer) {
    Result<void> good;
    if (side_ == Side::kConnects) {
      good = check_identity();
    }
    if (good) {
      good = check_claims(greet_of_peer, peer_.identity);
    }
    if (!good) {
      return refuse(good.error());
    }
    const Result<std::uint32_t> version =
        rpc::common_version(self_.versions, greet_of_peer.versions);
    if (!version) {
      return refuse(version.error());
    }
    peer_.incarnation = greet_of_peer.incarnation;
    peer_.version = *version;
    peer_.build = printable(greet_of_peer.build);
    peer_.isa = printable(greet_of_peer.isa);
    peer_.use = greet_of_peer.use;
    if (side_ == Side::kConnects) {
      greet();
    }
    state_ = State::kOpen;
    beat_later();
    const Opened tell = std::exchange(opened_, nullptr);
    tell(peer_);
    HEDDLE_CHECK(state_ != State::kOpen || handlers_.on_frame != nullptr);
  }

  // --- What is heard ---

  void hear(rpc::Frame& frame) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end this object.
    if (state_ == State::kLeaving) {
      return;
    }
    if (rpc::is_host_message(frame.payload)) {
      return hear_host(frame.payload);
    }
    if (state_ != State::kOpen) {
      return refuse({.code = Code::kCorrupt, .message = "it speaks before it has greeted"});
    }
    handlers_.on_frame(std::move(frame));
  }

  void hear_host(const std::string& payload) {
    const Result<rpc::HostMessage> message = rpc::decode_host_message(payload);
    if (!message) {
      return refuse(message.error());
    }
    if (const auto* const bye = std::get_if<rpc::Bye>(&*message)) {
      const bool refused = state_ == State::kGreeting;
      return fail(
          {.code = refused ? Code::kFailedPrecondition : Code::kUnavailable,
           .message = (refused ? "the peer refuses us: " : "the peer has ended the link: ") +
                      printable(bye->why)});
    }
    const auto* const greet_of_peer = std::get_if<rpc::Greet>(&*message);
    if ((greet_of_peer != nullptr) != (state_ == State::kGreeting)) {
      return refuse({.code = Code::kCorrupt, .message = "it does not greet once, and first"});
    }
    if (greet_of_peer != nullptr) {
      greeted(*greet_of_peer);
    }
  }

  void drained() {
    const std::shared_ptr<Impl> self = shared_from_this();
    if (state_ == State::kOpen && handlers_.on_drained) {
      handlers_.on_drained();
    }
  }

  // --- Beats ---

  void beat_later() {
    after(options_.beat, [](Impl& self) { self.beat(); });
  }

  void beat() {
    const std::uint64_t heard = link_->received_bytes();
    quiet_ = heard == std::exchange(heard_, heard) ? quiet_ + options_.beat : Duration();
    if (quiet_ >= options_.silence) {
      return refuse({.code = Code::kUnavailable,
                     .message = "it has said nothing for " + format_duration(options_.silence)});
    }
    if (!std::exchange(said_, false) && link_->queued_bytes() == 0) {
      (void)link_->send(rpc::encode(rpc::Alive{}));  // Its end is reported by who reads.
    }
    beat_later();
  }

  // --- The end ---

  /// Ends the link for a reason that the peer is told, too.
  void refuse(const Error& why) {
    const std::shared_ptr<Impl> self = shared_from_this();
    const bool open = state_ == State::kOpen;
    leave(why.message);
    tell_end(why, open);
  }

  /// Ends the link for a reason that the peer knows, or cannot be told.
  void fail(const Error& why) {
    const std::shared_ptr<Impl> self = shared_from_this();
    const State was = state_;
    stop();
    if (was != State::kLeaving && was != State::kStopped) {
      tell_end(why, was == State::kOpen);
    }
  }

  void tell_end(const Error& why, bool was_open) {
    const std::string whose = peer_.identity.name.empty() ? "" : peer_.identity.text() + " at ";
    const Error error{.code = why.code,
                      .message = (side_ == Side::kConnects ? "link to " : "link from ") + whose +
                                 peer_.address + ": " + why.message};
    const Opened opened = std::exchange(opened_, nullptr);
    const rpc::Link::Handlers handlers = std::exchange(handlers_, {});
    if (was_open) {
      handlers.on_closed(error);
    } else {
      opened(error);
    }
  }

  const Side side_;
  const Self self_;
  const Wanted wanted_;
  Opened opened_;  ///< Null once it was told.
  const HostLinkOptions options_;
  State state_ = State::kShaking;
  Peer peer_{};
  std::unique_ptr<TlsStream> stream_{};  ///< Until the link has it.
  TlsStream* tls_ = nullptr;             ///< The same, while there is one.
  std::optional<rpc::Link> link_{};      ///< From the greeting on.
  rpc::Link::Handlers handlers_{};
  asio::steady_timer timer_;  ///< Of the state: greeting's patience, the next beat, the last words.
  std::uint64_t turn_ = 0;    ///< Of the timer: what it waits for counts from 1.
  bool said_ = false;         ///< Something, since the last beat.
  std::uint64_t heard_ = 0;   ///< Bytes, by the last beat.
  Duration quiet_{};          ///< Since something was heard, in beats.
};

HostLink::HostLink(asio::ip::tcp::socket socket,
                   Side side,
                   Self self,
                   Wanted wanted,
                   Opened opened,
                   const HostLinkOptions& options)
    : impl_(std::make_shared<Impl>(std::move(socket),
                                   side,
                                   std::move(self),
                                   std::move(wanted),
                                   std::move(opened),
                                   options)) {
  impl_->begin();
}

HostLink::~HostLink() {
  impl_->leave("it has no more use for the link");
}

void HostLink::start(rpc::Link::Handlers handlers) {
  impl_->start(std::move(handlers));
}

Result<void> HostLink::send(std::string payload) {
  return impl_->send(std::move(payload));
}

std::size_t HostLink::queued_bytes() const {
  return impl_->queued_bytes();
}

void HostLink::end(const std::string& why) {
  impl_->leave(why);
}

}  // namespace heddle::net
