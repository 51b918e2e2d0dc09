#include "lab/watch.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "bench/http_client.h"

namespace heddle::lab {

namespace asio = boost::asio;

namespace {

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr std::size_t kShown = 500;  ///< Of a refusal, in messages [bytes].

/// Of an answer that is as it should be.
Result<std::string> body_of(const std::string& path, const Result<bench::HttpReply>& reply) {
  if (!reply) {
    return reply.error();
  }
  if (reply->status != 200) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = path + ": status " + std::to_string(reply->status) + ": " +
                            reply->body.substr(0, kShown)};
  }
  return reply->body;
}

/// `answer` becomes what was said.
asio::awaitable<void> exchange(bench::HttpClient& client,
                               std::string path,
                               std::string body,
                               Result<std::string>& answer) {
  const Result<void> found = co_await client.resolve();
  if (!found) {
    answer = found.error();
  } else if (body.empty()) {
    const Result<bench::HttpReply> got = co_await client.get(path);
    answer = body_of(path, got);
  } else {
    const Result<bench::HttpReply> posted = co_await client.post(path, std::move(body), nullptr);
    answer = body_of(path, posted);
  }
}

}  // namespace

Result<std::string> ask(const bench::Endpoint& server,
                        const std::string& path,
                        const std::string& body,
                        Duration patience) {
  asio::io_context loop(1);
  bench::HttpClient client(loop, server, patience);
  Result<std::string> answer = Error{.code = Code::kUnavailable, .message = path + ": no answer"};
  asio::co_spawn(loop, exchange(client, path, body, answer), [](const std::exception_ptr& failure) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  });
  loop.run();
  return answer;
}

class Watch::Impl {
 public:
  Impl(bench::Endpoint server, Duration interval)
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

  bench::Endpoint server_;
  Duration interval_;
  std::mutex mutex_{};
  std::condition_variable woken_{};
  bool ending_ = false;            // Guarded by mutex_.
  std::vector<Sample> samples_{};  ///< The thread's own until it has ended.
  std::thread thread_;
};

Watch::Watch(bench::Endpoint server, Duration interval)
    : impl_(std::make_unique<Impl>(std::move(server), interval)) {}
Watch::~Watch() = default;

std::vector<Sample> Watch::finish() {
  return impl_->finish();
}

}  // namespace heddle::lab
