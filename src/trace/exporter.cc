#include "trace/exporter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <random>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"
#include "http/client.h"
#include "trace/otlp_json.h"
#include "trace/retry.h"

namespace heddle::trace {

namespace asio = boost::asio;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::uint64_t kAnswerMax = 64U << 10U;  ///< Of which only a few numbers are read.

std::int64_t now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

/// What became of spans.
struct Counters {
  explicit Counters(Metrics& metrics) {
    sent = metrics.counter(
        "heddle_trace_spans_sent_total", "Spans that the collector of traces took.", {});
    dropped = metrics.counter("heddle_trace_spans_dropped_total",
                              "Spans that were lost as too many waited for the collector.",
                              {});
    failed = metrics.counter("heddle_trace_spans_failed_total",
                             "Spans that were lost as the collector did not take them.",
                             {});
  }

  Metrics::Counter sent{};
  Metrics::Counter dropped{};
  Metrics::Counter failed{};
};

}  // namespace

/// All is the thread's but for what stands behind `mutex_`.
class Exporter::Impl {
 public:
  Impl(Options options, Metrics& metrics)
      : options_(std::move(options)), counters_(metrics), alarm_(loop_), bound_(loop_) {}
  ~Impl() {
    loop_.stop();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> start() {
    Result<Thread> started = Thread::start({.name = "traces"}, [this] {
      asio::co_spawn(
          loop_, run(), [](const std::exception_ptr& error) { HEDDLE_CHECK(error == nullptr); });
      loop_.run();
    });
    if (!started) {
      return started.error();
    }
    thread_ = std::move(*started);
    return {};
  }

  void add(std::vector<Span> spans) {
    const std::size_t more = spans.size();
    std::size_t before = 0;
    {
      const std::lock_guard lock(mutex_);
      before = waiting_;
      if (before + more > options_.waiting_max) {
        counters_.dropped.add(static_cast<double>(more));
        return;
      }
      waiting_ += more;
      added_.push_back(std::move(spans));
    }
    // Else it is awake, or was told already.
    if (before == 0 || (before < options_.batch_max && before + more >= options_.batch_max)) {
      asio::post(loop_, [this] { alarm_.cancel(); });
    }
  }

  void flush(Duration patience, std::function<void()> done) {
    asio::post(loop_, [this, patience, done = std::move(done)] {
      flushed_ = done;
      bound_.expires_after(patience);
      bound_.async_wait([this](const boost::system::error_code& stopped) {
        if (!stopped) {
          finish();
        }
      });
      alarm_.cancel();
    });
  }

 private:
  [[nodiscard]] bool flushing() const { return flushed_.has_value(); }
  [[nodiscard]] std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

  /// The oldest that wait, as many as go into one request.
  std::vector<Span> take() {
    std::vector<std::vector<Span>> added;
    {
      const std::lock_guard lock(mutex_);
      added.swap(added_);
    }
    for (std::vector<Span>& spans : added) {
      std::ranges::move(spans, std::back_inserter(taken_));
    }
    const auto end =
        taken_.begin() + static_cast<std::ptrdiff_t>(std::min(taken_.size(), options_.batch_max));
    std::vector<Span> batch(std::make_move_iterator(taken_.begin()), std::make_move_iterator(end));
    taken_.erase(taken_.begin(), end);
    const std::lock_guard lock(mutex_);
    waiting_ -= batch.size();
    return batch;
  }

  asio::awaitable<void> run() {
    for (;;) {
      while (waiting() == 0 && !flushing()) {
        alarm_.expires_at(asio::steady_timer::time_point::max());
        co_await alarm_.async_wait(kAwait);
      }
      if (waiting() < options_.batch_max && !flushing()) {
        alarm_.expires_after(options_.gather);
        co_await alarm_.async_wait(kAwait);
      }
      while (waiting() > 0) {
        co_await send(take());
      }
      if (flushing()) {
        finish();
        co_return;
      }
    }
  }

  /// Until they are taken, or given up.
  asio::awaitable<void> send(std::vector<Span> batch) {
    const std::string body = spans_json(options_.resource, options_.version, batch);
    for (int tries = 1;; ++tries) {
      http::Request request{.method = "POST",
                            .target = options_.collector.base_path.empty() ? "/" : "",
                            .body = body,
                            .patience = options_.patience,
                            .body_max = kAnswerMax};
      make_client();
      const Result<http::Reply> reply = co_await client_->exchange(std::move(request));
      const Verdict verdict = judge(reply);
      if (verdict == Verdict::kTaken) {
        take_note(*reply, batch.size());
        co_return;
      }
      if (!reply) {
        client_.reset();  // The next looks its address up again.
      }
      complain(reply);
      if (verdict == Verdict::kRefused || tries >= options_.tries || flushing()) {
        counters_.failed.add(static_cast<double>(batch.size()));
        co_return;
      }
      std::optional<Duration> asked;
      if (reply) {
        asked = parse_retry_after(reply->retry_after, now_s());
      }
      alarm_.expires_after(wait_before_retry(tries, options_.first_wait, asked, rng_));
      co_await wait_patiently();
    }
  }

  /// Until the alarm, whatever comes meanwhile; a flush ends it.
  asio::awaitable<void> wait_patiently() {
    const auto until = alarm_.expiry();
    while (!flushing() && std::chrono::steady_clock::now() < until) {
      alarm_.expires_at(until);
      co_await alarm_.async_wait(kAwait);
    }
  }

  void make_client() {
    if (client_ == nullptr) {
      client_ = std::make_unique<http::Client>(
          loop_.get_executor(),
          options_.collector,
          http::ClientOptions{
              .user_agent = "heddle", .keep_alive = true, .headers = options_.headers});
    }
  }

  void take_note(const http::Reply& reply, std::size_t spans) {
    const PartialSuccess partial = read_partial_success(reply.body);
    const auto rejected = std::min(static_cast<std::size_t>(partial.rejected), spans);
    counters_.sent.add(static_cast<double>(spans - rejected));
    counters_.failed.add(static_cast<double>(rejected));
    if (rejected > 0) {
      log::warning("the collector rejected spans", {{"spans", rejected}, {"why", partial.why}});
    }
    if (std::exchange(complained_, false)) {
      log::info("the collector of traces takes spans again", {});
    }
  }

  /// Once until it takes some again.
  void complain(const Result<http::Reply>& reply) {
    if (!std::exchange(complained_, true)) {
      const std::string why =
          reply ? options_.collector.url() + ": it answered " + std::to_string(reply->status)
                : reply.error().message;
      log::warning("the collector of traces does not take spans", {{"why", why}});
    }
  }

  /// The flush has ended, or its time.
  void finish() {
    bound_.cancel();
    if (const std::function<void()> done = std::exchange(*flushed_, nullptr)) {
      done();
    }
  }

  const Options options_;
  Counters counters_;
  mutable std::mutex mutex_{};
  std::size_t waiting_ = 0;                 ///< Spans in the next two. Behind the mutex.
  std::vector<std::vector<Span>> added_{};  ///< Behind the mutex.
  std::deque<Span> taken_{};                ///< That went out of it, and wait for their batch.
  asio::io_context loop_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{loop_.get_executor()};
  asio::steady_timer alarm_;  ///< What run() waits for; cancelled when there is news.
  asio::steady_timer bound_;  ///< Of a flush.
  std::unique_ptr<http::Client> client_{};
  Rng rng_{std::random_device{}()};
  std::optional<std::function<void()>> flushed_{};  ///< While and after a flush.
  bool complained_ = false;
  Thread thread_{};
};

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exporter::~Exporter() = default;

Result<std::unique_ptr<Exporter>> Exporter::start(Options options, Metrics& metrics) {
  auto impl = std::make_unique<Impl>(std::move(options), metrics);
  if (const Result<void> started = impl->start(); !started) {
    return started.error();
  }
  return std::unique_ptr<Exporter>(new Exporter(std::move(impl)));
}

void Exporter::add(std::vector<Span> spans) {
  impl_->add(std::move(spans));
}

void Exporter::flush(Duration patience, std::function<void()> done) {
  impl_->flush(patience, std::move(done));
}

}  // namespace heddle::trace
