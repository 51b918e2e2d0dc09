#include "remote/callee.h"

#include <optional>
#include <utility>

namespace heddle::remote {

class Callee::Impl : public std::enable_shared_from_this<Callee::Impl> {
 public:
  Impl(Handlers handlers, std::size_t queued_most)
      : handlers_(std::move(handlers)), queued_most_(queued_most) {}

  void begin(const boost::asio::any_io_executor& executor,
             const net::Address& address,
             net::Self self,
             net::Wanted wanted,
             const net::ConnectorOptions& options) {
    connector_.emplace(executor,
                       address,
                       std::move(self),
                       std::move(wanted),
                       net::Connector::Handlers{
                           .on_up =
                               [this](const net::Peer& /*peer*/) {
                                 const std::shared_ptr<Impl> self = shared_from_this();
                                 handlers_.on_up();
                               },
                           .on_down =
                               [this](const Error& why) {
                                 const std::shared_ptr<Impl> self = shared_from_this();
                                 handlers_.on_down(why);
                               },
                           .on_frame = [this](const rpc::Frame& frame) { hear(frame.payload); }},
                       options);
  }

  void close() { connector_.reset(); }

  bool send(std::string payload) {
    const std::size_t bytes = connector_->queued_bytes() + payload.size();
    if (bytes > queued_most_) {
      connector_->end("it takes too little of what it is sent: " + std::to_string(bytes) +
                      " bytes would wait, and at most " + std::to_string(queued_most_) + " may");
      return false;
    }
    const Result<void> sent = connector_->send(std::move(payload));
    if (!sent) {
      connector_->end(sent.error().message);
    }
    return sent.has_value();
  }

 private:
  void hear(const std::string& payload) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end this object.
    const Result<void> good = handlers_.on_message(payload);
    if (!good && connector_) {
      connector_->end(good.error().message);
    }
  }

  const Handlers handlers_;
  const std::size_t queued_most_;
  std::optional<net::Connector> connector_{};
};

Callee::Callee(const boost::asio::any_io_executor& executor,
               const net::Address& address,
               net::Self self,
               net::Wanted wanted,
               Handlers handlers,
               const net::ConnectorOptions& options,
               std::size_t queued_most)
    : impl_(std::make_shared<Impl>(std::move(handlers), queued_most)) {
  impl_->begin(executor, address, std::move(self), std::move(wanted), options);
}

Callee::~Callee() {
  impl_->close();
}

bool Callee::send(std::string payload) {
  return impl_->send(std::move(payload));
}

}  // namespace heddle::remote
