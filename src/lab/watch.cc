#include "lab/watch.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "http/blocking_client.h"

namespace heddle::lab {

namespace {

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr std::size_t kShown = 500;  ///< Of a refusal, in messages [bytes].

}  // namespace

Result<std::string> ask(const HttpAddress& server,
                        const std::string& path,
                        const std::string& body,
                        Duration patience) {
  http::BlockingClient client(server);
  Result<http::Reply> reply = client.exchange({.method = body.empty() ? "GET" : "POST",
                                               .target = path,
                                               .body = body,
                                               .patience = patience,
                                               .body_max = http::kAnyLength});
  if (!reply) {
    return reply.error();
  }
  if (reply->status != 200) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = path + ": status " + std::to_string(reply->status) + ": " +
                            reply->body.substr(0, kShown)};
  }
  return std::move(reply->body);
}

class Watch::Impl {
 public:
  Impl(HttpAddress server, Duration interval)
      : server_(std::move(server)), interval_(interval), thread_([this] { run(); }) {}
  ~Impl() { (void)finish(); }

  std::vector<Sample> finish() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    woken_.notify_all();
    if (thread_.joinable()) {
      thread_.join();
    }
    return std::move(samples_);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (bool last = false; !last;) {
      last = ending_;
      lock.unlock();
      const Instant at = steady_now();
      const Result<std::string> text = ask(server_, "/metrics", "", kPatience);
      if (text) {
        samples_.push_back({.at = at, .counters = Counters::parse(*text)});
      }
      lock.lock();
      if (!last) {
        woken_.wait_for(lock, interval_, [this] { return ending_; });
      }
    }
  }

  HttpAddress server_;
  Duration interval_;
  std::mutex mutex_{};
  std::condition_variable woken_{};
  bool ending_ = false;            // Guarded by mutex_.
  std::vector<Sample> samples_{};  ///< The thread's own until it has ended.
  std::thread thread_;
};

Watch::Watch(HttpAddress server, Duration interval)
    : impl_(std::make_unique<Impl>(std::move(server), interval)) {}
Watch::~Watch() = default;

std::vector<Sample> Watch::finish() {
  return impl_->finish();
}

}  // namespace heddle::lab
