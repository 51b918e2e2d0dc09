#include "base/event_log.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

namespace heddle {

namespace {

int open_empty(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::create(Options options) {
  std::unique_ptr<EventLog> self(new EventLog(std::move(options)));
  self->fd_ = open_empty(self->options_.path);
  if (self->fd_ < 0) {
    return Error{Code::kUnavailable,
                 "write the event log " + self->options_.path + ": " + std::strerror(errno)};
  }
  Result<Thread> thread = Thread::start({.name = "event log"}, [raw = self.get()] { raw->run(); });
  if (!thread) {
    return thread.error();
  }
  self->thread_ = std::move(*thread);
  return self;
}

EventLog::~EventLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  thread_.join();
  if (fd_ >= 0) {
    (void)::close(fd_);
  }
}

void EventLog::write(const std::string& lines) {
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) {
      return;
    }
    if (waiting_.size() + lines.size() > options_.waiting_bytes_max) {
      given_up_ = true;
      log::warning("event log ends: the disk is too slow", {{"file", options_.path}});
      return;
    }
    waiting_ += lines;
  }
  woken_.notify_one();
}

void EventLog::run() {
  for (;;) {
    std::string lines;
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      lines.swap(waiting_);
      last = stopping_;
    }
    if (!put(lines)) {
      const std::lock_guard lock(mutex_);
      given_up_ = true;
      return;
    }
    if (last) {
      return;
    }
  }
}

bool EventLog::put(const std::string& lines) {
  if (written_ > 0 && written_ + lines.size() > options_.bytes_max) {
    (void)::close(fd_);
    const std::string before = options_.path + ".1";
    fd_ = std::rename(options_.path.c_str(), before.c_str()) == 0 ? open_empty(options_.path) : -1;
    written_ = 0;
  }
  std::size_t done = 0;
  while (fd_ >= 0 && done < lines.size()) {
    const ssize_t wrote = ::write(fd_, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno != EINTR) {
      break;
    }
    done += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
  }
  written_ += done;
  if (done < lines.size()) {
    log::warning("event log ends", {{"file", options_.path}, {"error", std::strerror(errno)}});
    return false;
  }
  return true;
}

}  // namespace heddle
