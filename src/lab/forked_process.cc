#include "lab/forked_process.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::lab {

namespace {

constexpr std::size_t kLongestMessage = 4096;

}  // namespace

bool Line::say(const std::string& text) const {
  return socket_ && ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) >= 0;
}

std::optional<std::string> Line::hear() const {
  std::string text(kLongestMessage, 0);
  const ssize_t size = socket_ ? ::recv(socket_.get(), text.data(), text.size(), 0) : -1;
  if (size <= 0) {
    return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(size));
  return text;
}

bool Line::heard() const {
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 0) > 0;
}

ForkedProcess::ForkedProcess(const std::function<void(const Line&)>& serve) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return;  // ask() says that there is none.
  }
  line_ = Line(Descriptor(ends[0]));
  Line other{Descriptor(ends[1])};
  pid_ = ::fork();
  if (pid_ == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    line_ = Line();
    serve(other);
    std::_Exit(0);
  }
}

ForkedProcess::~ForkedProcess() {
  if (pid_ > 0) {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
}

Result<std::string> ForkedProcess::ask(const std::string& text) const {
  std::optional<std::string> answer;
  if (pid_ > 0 && line_.say(text)) {
    answer = line_.hear();
  }
  if (!answer) {
    return Error{.code = Code::kUnavailable,
                 .message = pid_ > 0 ? "the process beside this one has ended"
                                     : "no process could be made beside this one"};
  }
  return std::move(*answer);
}

}  // namespace heddle::lab
