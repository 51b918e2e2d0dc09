#include "worker/peer_assist.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

namespace heddle::worker {

PeerAssist::PeerAssist(device::Device& device, std::function<bool()> is_idle)
    : device_(device),
      is_idle_(std::move(is_idle)),
      waker_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { run(); }) {
  HEDDLE_CHECK(waker_);  // Of a few descriptors in a new process.
}

PeerAssist::~PeerAssist() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void PeerAssist::wake() {
  (void)::eventfd_write(waker_.get(), 1);
}

void PeerAssist::serve(Descriptor socket) {
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(socket));
  }
  wake();
}

void PeerAssist::run() {
  (void)::pthread_setname_np(::pthread_self(), "peer-assist");
  for (;;) {
    std::vector<pollfd> waiting{{.fd = waker_.get(), .events = POLLIN, .revents = 0}};
    for (const Descriptor& socket : sockets_) {
      waiting.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
    }
    if (::poll(waiting.data(), waiting.size(), -1) < 0) {
      continue;  // A signal.
    }
    for (std::size_t i = waiting.size(); i-- > 1;) {
      if (waiting[i].revents != 0 && !answer(sockets_[i - 1])) {
        holder_ = holder_ == waiting[i].fd ? -1 : holder_;
        sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(i - 1));
      }
    }
    if (waiting[0].revents != 0) {
      eventfd_t count = 0;
      (void)::eventfd_read(waker_.get(), &count);
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;
      }
      std::ranges::move(arrived_, std::back_inserter(sockets_));
      arrived_.clear();
    }
  }
}

bool PeerAssist::answer(const Descriptor& socket) {
  const Result<PeerRequest> request = receive_request(socket);
  if (!request) {
    return false;
  }
  switch (request->ask) {
    case PeerAsk::kBegin:
      return answer_begin(socket);
    case PeerAsk::kFetch:
      return answer_fetch(socket, *request);
    case PeerAsk::kEnd:
      holder_ = holder_ == socket.get() ? -1 : holder_;
      return true;
  }
  return false;
}

bool PeerAssist::answer_begin(const Descriptor& socket) {
  const bool free = holder_ < 0 || holder_ == socket.get();
  if (!free || !is_idle_() || !prepare()) {
    return send_reply(socket, {.answer = PeerAnswer::kBusy}).has_value();
  }
  holder_ = socket.get();
  const PeerReply granted{.answer = PeerAnswer::kGranted, .bytes = staging_->buffer.bytes()};
  return send_reply(socket, granted, &staging_->descriptor).has_value();
}

/// The staging area, once somebody wants it. Where there is no memory for it nobody gets any.
bool PeerAssist::prepare() {
  if (staging_ || unable_) {
    return !unable_;
  }
  auto shared = device_.allocate_shared(kPeerSlots * kPeerSlotBytes);
  auto stream = device_.create_background_stream();
  if (shared && stream) {
    staging_ = std::move(*shared);
    stream_ = std::move(*stream);
    return true;
  }
  unable_ = true;
  log::warning("this GPU's link is not lent to others",
               {{"error", (shared ? stream.error() : shared.error()).message}});
  return false;
}

bool PeerAssist::answer_fetch(const Descriptor& socket, const PeerRequest& request) {
  if (holder_ == socket.get() && !is_idle_()) {
    holder_ = -1;
  }
  if (holder_ != socket.get()) {
    return send_reply(socket, {.answer = PeerAnswer::kBusy, .slot = request.slot}).has_value();
  }
  if (const Result<void> fetched = fetch(request); !fetched) {
    unable_ = true;  // If the device is lost, those who run its models say so.
    holder_ = -1;
    return false;
  }
  return send_reply(socket, {.answer = PeerAnswer::kFetched, .slot = request.slot}).has_value();
}

Result<void> PeerAssist::fetch(const PeerRequest& request) {
  std::byte* target = staging_->buffer.data() + request.slot * kPeerSlotBytes;
  std::uint64_t bytes = 0;
  for (const HostPiece& piece : request.pieces) {
    const std::uint64_t page_bytes = device_.properties().page_bytes;
    HEDDLE_CHECK(piece.offset <= page_bytes && piece.bytes <= page_bytes - piece.offset);
    stream_->copy(
        target + bytes, device_.host_page_address(piece.page) + piece.offset, piece.bytes);
    bytes += piece.bytes;
  }
  const Result<void> copied = stream_->synchronize();
  peer_assist_bytes_ += copied ? bytes : 0;
  return copied;
}

}  // namespace heddle::worker
