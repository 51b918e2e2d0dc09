#include "external/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>

namespace heddle::external {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kReadBytes = 64U << 10U;
/// Of one who writes on after it is to be over.
constexpr std::size_t kLastReads = 64;

/// What may be logged: `burst` at once, refilled at `per_second`.
class Allowance {
 public:
  explicit Allowance(const OutputLimits& limits)
      : most_(static_cast<double>(limits.burst)),
        rate_(static_cast<double>(limits.per_second)),
        left_(most_) {}

  bool take(Instant now) {
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    left_ = std::min(most_, left_ + passed.count() * rate_);
    if (left_ < 1) {
      return false;
    }
    left_ -= 1;
    return true;
  }

 private:
  double most_;
  double rate_;
  double left_;
  Instant last_ = steady_now();
};

}  // namespace

struct Output::State {
  State(std::string model_name, const OutputLimits& how)
      : model(std::move(model_name)), limits(how), allowance(how) {}

  /// In the thread, until nobody can write any more.
  void run(const Descriptor& input, const Descriptor& stop) {
    std::vector<char> buffer(kReadBytes);
    for (std::size_t late = 0; late < kLastReads;) {
      std::array<pollfd, 2> waited{{{.fd = input.get(), .events = POLLIN, .revents = 0},
                                    {.fd = stop.get(), .events = 0, .revents = 0}}};
      if (::poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) {
        break;
      }
      late += waited[1].revents != 0 ? 1 : 0;
      if (waited[0].revents != 0) {
        const ssize_t got = ::read(input.get(), buffer.data(), buffer.size());
        if (got == 0) {
          break;
        }
        take(std::string_view(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
      } else if (late > 0) {
        break;
      }
    }
    end_line();
    tell_dropped();
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  void take(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      line.append(part.substr(0, limits.line_bytes - std::min(line.size(), limits.line_bytes)));
      if (end == std::string_view::npos) {
        return;
      }
      end_line();
      bytes.remove_prefix(end + 1);
    }
  }

  void end_line() {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.pop_back();
    }
    if (line.empty()) {
      return;
    }
    if (allowance.take(steady_now())) {
      tell_dropped();
      log::info(line, {{"model", model}});
    } else {
      ++dropped;
    }
    {
      const std::lock_guard lock(mutex);
      if (last.size() == limits.kept) {
        last.pop_front();
      }
      last.push_back(line);
    }
    line.clear();
  }

  void tell_dropped() {
    if (dropped > 0) {
      log::warning("engine writes more than is logged; lines were left out",
                   {{"model", model}, {"lines", std::exchange(dropped, 0)}});
    }
  }

  const std::string model;
  const OutputLimits limits;
  // The thread's own.
  Allowance allowance;
  std::string line{};
  std::uint64_t dropped = 0;
  // Guarded by the mutex.
  mutable std::mutex mutex{};
  mutable std::condition_variable changed{};
  std::deque<std::string> last{};
  bool ended = false;
};

Output::Output(std::string model, OutputLimits limits)
    : state_(std::make_shared<State>(std::move(model), limits)) {}

Output::~Output() {
  stop_ = Descriptor();
  thread_.join();
}

Result<Descriptor> Output::open() {
  HEDDLE_CHECK(!stop_);  // It is opened once.
  std::array<int, 2> ends{-1, -1};
  std::array<int, 2> stop{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{Code::kUnavailable,
                 "make a pipe for what the engine writes: " + std::string(std::strerror(errno))};
  }
  Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  if (::pipe2(stop.data(), O_CLOEXEC) != 0) {
    return Error{Code::kUnavailable,
                 "make a pipe for what the engine writes: " + std::string(std::strerror(errno))};
  }
  stop_ = Descriptor(stop[1]);
  const auto input = std::make_shared<Descriptor>(std::move(reading));
  const auto end = std::make_shared<Descriptor>(stop[0]);
  Result<Thread> thread =
      Thread::start({.name = "output"}, [state = state_, input, end] { state->run(*input, *end); });
  if (!thread) {
    return thread.error();
  }
  thread_ = std::move(*thread);
  return writing;
}

std::vector<std::string> Output::last_lines() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->last.begin(), state_->last.end()};
}

void Output::wait(Duration patience) const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, patience, [this] { return state_->ended; });
}

}  // namespace heddle::external
