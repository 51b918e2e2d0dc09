#include "remote/caller.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace heddle::remote {

namespace asio = boost::asio;

class Caller::Impl : public std::enable_shared_from_this<Caller::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       std::unique_ptr<net::HostLink> link,
       net::Peer peer,
       Handlers handlers,
       std::size_t queued_most)
      : executor_(std::move(executor)),
        link_(std::move(link)),
        peer_(std::move(peer)),
        handlers_(std::move(handlers)),
        queued_most_(queued_most) {}

  void begin() {
    link_->start({.on_frame = [this](const rpc::Frame& frame) { hear(frame.payload); },
                  .on_closed = [this](const Error& error) { gone(error); },
                  .on_drained = handlers_.on_drained});
  }

  [[nodiscard]] const net::Peer& peer() const { return peer_; }
  [[nodiscard]] std::size_t queued_bytes() const { return link_ ? link_->queued_bytes() : 0; }

  void send(std::string payload) {
    if (state_ != State::kUp) {
      return;
    }
    const std::size_t bytes = link_->queued_bytes() + payload.size();
    if (bytes > queued_most_) {
      give_up({.code = Code::kResourceExhausted,
               .message = "it takes too little of what it is sent: " + std::to_string(bytes) +
                          " bytes would wait, and at most " + std::to_string(queued_most_) +
                          " may"});
    } else if (const Result<void> sent = link_->send(std::move(payload)); !sent) {
      give_up(sent.error());
    }
  }

  void end(const std::string& why) {
    if (state_ == State::kUp) {
      link_->end(why);
    }
    state_ = State::kEnded;
    link_.reset();
  }

 private:
  enum class State : std::uint8_t {
    kUp,
    kGivenUp,  ///< The link has ended; the owner is to hear of it.
    kEnded,
  };

  void hear(const std::string& payload) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end this object.
    const Result<void> good = handlers_.on_message(payload);
    if (!good && state_ == State::kUp) {
      link_->end(good.error().message);
      gone(named(good.error()));
    }
  }

  /// Ends the link, of which the owner hears later: it is at something else now.
  void give_up(const Error& why) {
    state_ = State::kGivenUp;
    link_->end(why.message);
    asio::post(executor_, [self = shared_from_this(), error = named(why)] { self->gone(error); });
  }

  void gone(const Error& why) {
    const std::shared_ptr<Impl> self = shared_from_this();
    if (std::exchange(state_, State::kEnded) != State::kEnded) {
      link_.reset();
      handlers_.on_gone(why);
    }
  }

  [[nodiscard]] Error named(const Error& why) const {
    return {.code = why.code,
            .message =
                "link from " + peer_.identity.text() + " at " + peer_.address + ": " + why.message};
  }

  asio::any_io_executor executor_;
  std::unique_ptr<net::HostLink> link_;
  const net::Peer peer_;
  const Handlers handlers_;
  const std::size_t queued_most_;
  State state_ = State::kUp;
};

Caller::Caller(const asio::any_io_executor& executor,
               std::unique_ptr<net::HostLink> link,
               net::Peer peer,
               Handlers handlers,
               std::size_t queued_most)
    : impl_(std::make_shared<Impl>(
          executor, std::move(link), std::move(peer), std::move(handlers), queued_most)) {
  impl_->begin();
}

Caller::~Caller() {
  impl_->end("it has no more use for the link");
}

const net::Peer& Caller::peer() const {
  return impl_->peer();
}
void Caller::send(std::string payload) {
  impl_->send(std::move(payload));
}
std::size_t Caller::queued_bytes() const {
  return impl_->queued_bytes();
}
void Caller::end(const std::string& why) {
  impl_->end(why);
}

}  // namespace heddle::remote
