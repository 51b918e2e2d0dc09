#include "fetch/transfer.h"

#include <functional>
#include <optional>
#include <vector>

#include "base/thread.h"
#include "fetch/rate_limit.h"

namespace heddle::fetch {
namespace {

/// The threads that fetch for one order.
class Fetchers {
 public:
  Fetchers(Source& source, Incoming& incoming, OrderId order, const TransferOptions& options)
      : source_(source),
        incoming_(incoming),
        order_(order),
        options_(options),
        limit_(options.bytes_per_second) {}

  Result<void> run(const std::stop_token& stop) {
    const std::stop_callback ends(stop, [this] { stop_.request_stop(); });
    {
      std::vector<Thread> threads;
      for (std::size_t i = 1; i < options_.connections; ++i) {
        Result<Thread> thread = Thread::start({.name = "fetch"}, [this] { work(); });
        if (!thread) {
          break;  // Fewer do as well.
        }
        threads.push_back(std::move(thread).value());
      }
      work();
    }
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    const std::optional<Error> failure = incoming_.failure(order_);
    return failure ? Result<void>(*failure) : Result<void>();
  }

 private:
  void work() {
    const std::stop_token stop = stop_.get_token();
    while (const std::optional<Work::Kind> kind = incoming_.await_work(order_, stop)) {
      if (options_.turn && *kind != Work::Kind::kFinish) {
        options_.turn(stop);
      }
      const std::optional<Work> work = incoming_.claim(order_);
      if (!work) {
        continue;
      }
      incoming_.done(order_,
                     *work,
                     work->kind == Work::Kind::kFinish ? finish(*work, stop) : fetch(*work, stop));
      if (incoming_.failure(order_)) {
        stop_.request_stop();
      }
    }
  }

  Result<void> finish(const Work& work, const std::stop_token& stop) {
    Result<void> finished = incoming_.finish(work, stop);
    if (!finished && finished.error().code == Code::kCorrupt) {
      source_.spoilt(incoming_.jobs()[work.job].object);
    }
    return finished;
  }

  Result<void> fetch(const Work& work, const std::stop_token& stop) {
    bool enough = false;
    const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      limit_.take_and_wait(bytes.size(), stop);
      if (options_.took) {
        options_.took(bytes.size(), stop);
      }
      const Result<bool> put = incoming_.put(work, offset, bytes);
      if (!put) {
        return put.error();
      }
      enough = *put;
      return enough ? Error{Code::kCancelled, "that is enough"} : Result<void>();
    };
    Result<void> read = source_.read(incoming_.jobs()[work.job].object, work.range, sink, stop);
    return enough ? Result<void>() : read;
  }

  Source& source_;
  Incoming& incoming_;
  OrderId order_;
  const TransferOptions& options_;
  RateLimit limit_;
  std::stop_source stop_{};
};

}  // namespace

Result<void> transfer(Source& source,
                      Incoming& incoming,
                      OrderId order,
                      const TransferOptions& options,
                      const std::stop_token& stop) {
  return Fetchers(source, incoming, order, options).run(stop);
}

Result<void> transfer(Source& source,
                      std::span<const Job> jobs,
                      const TransferOptions& options,
                      const TransferEvents& events,
                      const std::stop_token& stop) {
  Incoming incoming({jobs.begin(), jobs.end()},
                    {.piece_bytes = options.piece_bytes,
                     .record_bytes = options.record_bytes,
                     .digest_tries = options.digest_tries,
                     .keep = events.done});
  std::vector<Part> all;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    all.push_back({.job = job, .range = {0, jobs[job].object.bytes}});
  }
  const OrderId order = incoming.begin(all, {.moved = events.moved, .checking = events.checking});
  return transfer(source, incoming, order, options, stop);
}

}  // namespace heddle::fetch
