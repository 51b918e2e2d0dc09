#include "worker/outbox.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace heddle::worker {

Outbox::Outbox(boost::asio::any_io_executor executor, rpc::Link& link, Handlers handlers)
    : executor_(std::move(executor)), link_(link), handlers_(std::move(handlers)) {}

void Outbox::send(const rpc::ToServe& message, std::vector<rpc::Descriptor> descriptors) {
  std::string bytes = rpc::encode(message);
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = waiting_.empty();
    waiting_bytes_ += bytes.size();
    waiting_.push_back({.payload = std::move(bytes), .descriptors = std::move(descriptors)});
  }
  if (first) {
    boost::asio::post(executor_, [this] { flush(); });
  }
}

void Outbox::flush() {
  std::vector<rpc::Frame> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(waiting_);
  }
  for (rpc::Frame& frame : taken) {
    const std::size_t size = frame.payload.size();
    const Result<void> sent = link_.send(std::move(frame.payload), std::move(frame.descriptors));
    waiting_bytes_ -= size;
    if (!sent) {
      return handlers_.on_failed(sent.error());
    }
  }
  if (link_.queued_bytes() == 0) {
    link_drained();
  }
}

bool Outbox::backlogged() {
  if (bytes() <= kBacklogBytes) {
    return false;
  }
  // Said before looking again: either this sees the backlog gone, or the loop sees this.
  backlog_seen_ = true;
  return bytes() > kBacklogBytes;
}

void Outbox::link_drained() {
  if (backlog_seen_.exchange(false)) {
    handlers_.on_relieved();
  }
}

}  // namespace heddle::worker
