#include "agent/worker_life.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "base/log.h"

#include <fcntl.h>

namespace heddle::agent {

Result<std::unique_ptr<WorkerLife>> WorkerLife::begin(const boost::asio::any_io_executor& executor,
                                                      const rpc::WorkerHello& hello,
                                                      int arena_fd,
                                                      Handlers handlers) {
  auto sockets = rpc::socket_pair();
  if (!sockets) {
    return sockets.error();
  }
  rpc::Descriptor arena(::fcntl(arena_fd, F_DUPFD_CLOEXEC, 0));
  if (!arena) {
    return Error{Code::kResourceExhausted,
                 std::string("duplicate the arena's descriptor: ") + std::strerror(errno)};
  }
  std::unique_ptr<WorkerLife> self(new WorkerLife(hello.epoch, std::move(handlers)));
  const auto on_exit = [raw = self.get()](const std::string& how) {
    raw->exited_ = how;
    raw->tell_if_over();
  };
  auto process = WorkerProcess::spawn(executor, std::move(sockets->second), on_exit);
  if (!process) {
    return process.error();
  }
  self->process_ = std::move(*process);
  const auto on_closed = [raw = self.get()](const Error& error) {
    if (error.code == Code::kCorrupt) {
      log::error("worker does not speak the protocol", {{"error", error.message}});
    }
    raw->link_closed_ = true;
    raw->process_->kill();  // Without a link it is of no use, should it still run.
    raw->tell_if_over();
  };
  self->link_ = std::make_unique<rpc::Link>(
      executor,
      std::move(sockets->first),
      rpc::Link::Handlers{
          .on_frame = [raw = self.get()](rpc::Frame frame) { raw->hear(std::move(frame)); },
          .on_closed = on_closed});
  std::vector<rpc::Descriptor> descriptors;
  descriptors.push_back(std::move(arena));
  const Result<void> sent = self->link_->send(rpc::encode(hello), std::move(descriptors));
  if (!sent) {
    return sent.error();
  }
  return self;
}

void WorkerLife::send(const rpc::ToWorker& message, std::vector<rpc::Descriptor> descriptors) {
  if (link_closed_) {
    return;  // Its end is being reported.
  }
  if (const Result<void> sent = link_->send(rpc::encode(message), std::move(descriptors)); !sent) {
    log::error("worker does not take what it is sent", {{"error", sent.error().message}});
    process_->kill();
  }
}

void WorkerLife::hear(rpc::Frame frame) {
  Result<rpc::ToServe> message = rpc::decode_to_serve(frame.payload);
  if (!message) {
    log::error("worker sent what cannot be read", {{"error", message.error().message}});
    process_->kill();
    return;
  }
  if (message->epoch != epoch_) {
    log::warning("worker spoke for another life",
                 {{"epoch", message->epoch}, {"expected", epoch_}});
    return;
  }
  if (auto* report = std::get_if<core::WorkerReport>(&message->body)) {
    handlers_.on_report(std::move(*report), std::move(frame.descriptors));
  } else if (const auto* ack = std::get_if<rpc::HelloAck>(&message->body)) {
    handlers_.on_hello(ack->failure);
  } else if (const auto* beat = std::get_if<rpc::Beat>(&message->body)) {
    handlers_.on_beat(*beat);
  } else if (auto* ask = std::get_if<rpc::KvAsk>(&message->body)) {
    handlers_.on_kv_ask(std::move(*ask));
  } else if (auto* given = std::get_if<rpc::KvGiven>(&message->body)) {
    handlers_.on_kv_given(std::move(*given));
  } else {
    handlers_.on_stats(std::get<rpc::WorkerStats>(message->body));
  }
}

void WorkerLife::tell_if_over() {
  if (link_closed_ && exited_.has_value()) {
    const auto tell = handlers_.on_exited;  // A copy: the call may destroy this object.
    const std::string how = *exited_;
    tell(how);
  }
}

}  // namespace heddle::agent
