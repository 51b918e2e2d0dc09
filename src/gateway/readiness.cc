#include "gateway/readiness.h"

#include <algorithm>
#include <array>

#include <fcntl.h>
#include <sys/epoll.h>

namespace heddle::gateway {

namespace {

/// Sockets that are told of in one turn of the loop, so that others get theirs.
constexpr int kTurn = 32;
constexpr std::uint32_t kInterest = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

}  // namespace

Readiness::Readiness(boost::asio::execution_context& loop)
    : service(loop),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      news_(static_cast<boost::asio::io_context&>(loop)) {
  const int copy = epoll_ ? ::fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0) : -1;
  if (copy >= 0) {
    news_.assign(copy);
  }
}

bool Readiness::add(int socket, Listener& listener) {
  if (!works()) {
    return false;
  }
  const auto place = static_cast<std::size_t>(socket);
  entries_.resize(std::max(entries_.size(), place + 1));
  entries_[place] = {.listener = &listener, .serial = ++serials_};
  epoll_event event{.events = kInterest,
                    .data = {.u64 = std::uint64_t{serials_} << 32U | std::uint64_t{place}}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0) {
    return true;
  }
  entries_[place] = {};
  return false;
}

void Readiness::remove(int socket) {
  entries_[static_cast<std::size_t>(socket)] = {};
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void Readiness::expect() {
  ++expecting_;
  wait();
}

void Readiness::unexpect() {
  if (--expecting_ == 0 && waiting_) {
    boost::system::error_code ignored;
    news_.cancel(ignored);
  }
}

void Readiness::wait() {
  if (waiting_ || expecting_ == 0 || ended_ || !works()) {
    return;
  }
  waiting_ = true;
  news_.async_wait(news_.wait_read, [this](const boost::system::error_code&) {
    waiting_ = false;
    tell();
    wait();
  });
}

void Readiness::tell() {
  std::array<epoll_event, kTurn> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kTurn, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const Entry& entry = entries_[static_cast<std::uint32_t>(event.data.u64)];
    if (entry.listener != nullptr && entry.serial == event.data.u64 >> 32U) {
      const bool hung_up = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      entry.listener->on_news({.readable = hung_up || (event.events & EPOLLIN) != 0,
                               .writable = hung_up || (event.events & EPOLLOUT) != 0,
                               .hung_up = hung_up});
    }
  }
}

void Readiness::shutdown() {
  ended_ = true;
  boost::system::error_code ignored;
  news_.close(ignored);
  const std::set<Listener*> listeners = listeners_;
  for (Listener* listener : listeners) {
    if (listeners_.contains(listener)) {  // Others may end with one.
      listener->on_loop_end();
    }
  }
}

}  // namespace heddle::gateway
