#include "fetch/transfer.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/thread.h"
#include "fetch/digest.h"
#include "fetch/partial_file.h"
#include "fetch/rate_limit.h"

namespace heddle::fetch {
namespace {

constexpr int kDigestTries = 2;

/// How far one object is.
struct JobState {
  std::optional<PartialFile> file{};
  std::vector<Range> left{};  ///< The next at the end.
  std::size_t running = 0;    ///< Threads that work on it.
  std::uint64_t there = 0;
  int digests_wrong = 0;
  bool one_stream = false;  ///< Its server ignores ranges.
  bool over = false;
};

struct Task {
  std::size_t job = 0;
  Range range{};
  bool finish = false;  ///< All pieces are there.
};

class Transfer {
 public:
  Transfer(Source& source,
           std::span<const Job> jobs,
           const TransferOptions& options,
           const TransferEvents& events)
      : source_(source),
        jobs_(jobs),
        options_(options),
        events_(events),
        limit_(options.bytes_per_second),
        states_(jobs.size()) {}

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
    if (failed_) {
      return *failed_;
    }
    return stop.stop_requested() ? Result<void>(Error{Code::kCancelled, "stopped"})
                                 : Result<void>();
  }

 private:
  void work() {
    while (const std::optional<Task> task = next()) {
      if (task->finish) {
        end_job(task->job, finish(task->job));
      } else {
        end_piece(*task, fetch(*task));
      }
    }
  }

  /// Something to do; nothing where all is done or nothing more should be.
  std::optional<Task> next() {
    std::unique_lock lock(mutex_);
    while (!failed_ && !stop_.stop_requested()) {
      bool all_over = true;
      for (std::size_t job = first_; job < jobs_.size(); ++job) {
        JobState& state = states_[job];
        if (state.over) {
          first_ += job == first_ ? 1 : 0;
          continue;
        }
        all_over = false;
        if (!state.file && !open(job)) {
          break;
        }
        if (!state.left.empty()) {
          const Range range = state.left.back();
          state.left.pop_back();
          ++state.running;
          return Task{.job = job, .range = range};
        }
        if (state.running == 0) {  // Of an empty object, or all was there.
          ++state.running;
          return Task{.job = job, .finish = true};
        }
      }
      if (all_over) {
        return std::nullopt;
      }
      changed_.wait(
          lock, stop_.get_token(), [this, before = changes_] { return changes_ != before; });
    }
    return std::nullopt;
  }

  /// With the lock.
  bool open(std::size_t job) {
    Result<PartialFile> file =
        PartialFile::open(jobs_[job].partial, jobs_[job].object, options_.piece_bytes);
    if (!file) {
      fail(file.error());
      return false;
    }
    JobState& state = states_[job];
    state.file = std::move(file).value();
    list_pieces(job);
    return true;
  }

  void list_pieces(std::size_t job) {
    JobState& state = states_[job];
    state.there = state.file->present_bytes();
    state.left = state.file->missing();
    if (state.one_stream && !state.left.empty()) {
      state.there = 0;
      state.left = {{.begin = 0, .end = jobs_[job].object.bytes}};
    }
    std::ranges::reverse(state.left);
    events_.moved(job, state.there);
  }

  Result<void> fetch(const Task& task) {
    JobState& state = states_[task.job];
    const std::stop_token stop = stop_.get_token();
    std::uint64_t came = 0;
    const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      limit_.take_and_wait(bytes.size(), stop);
      if (const Result<void> written = state.file->write(offset, bytes); !written) {
        return written;
      }
      came += bytes.size();
      add(task.job, static_cast<std::int64_t>(bytes.size()));
      return {};
    };
    Result<void> done = source_.read(jobs_[task.job].object, task.range, sink, stop);
    if (!done) {
      add(task.job, -static_cast<std::int64_t>(came));
    }
    return done;
  }

  void add(std::size_t job, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    JobState& state = states_[job];
    state.there += static_cast<std::uint64_t>(bytes);
    if (bytes > 0 || !stop_.stop_requested()) {
      events_.moved(job, state.there);
    }
  }

  void end_piece(const Task& task, const Result<void>& done) {
    const std::lock_guard lock(mutex_);
    JobState& state = states_[task.job];
    --state.running;
    ++changes_;
    changed_.notify_all();
    if (done) {
      if (const Result<void> marked = state.file->mark(task.range); !marked) {
        fail(marked.error());
      }
      return;
    }
    const bool is_whole = task.range.bytes() == jobs_[task.job].object.bytes;
    if (done.error().message == kIgnoresRanges && !is_whole) {
      state.one_stream = true;
      state.left.clear();
    } else if (!state.one_stream || is_whole) {
      fail(done.error());
    }
    if (state.one_stream && state.running == 0) {
      list_pieces(task.job);
    }
  }

  Result<void> finish(std::size_t job) {
    {
      const std::lock_guard lock(mutex_);
      events_.checking(job);
    }
    PartialFile& file = *states_[job].file;
    if (Result<void> right = check_digest(file.path(), jobs_[job].object, stop_.get_token());
        !right) {
      return right;
    }
    if (Result<void> cut = file.finish(); !cut) {
      return cut;
    }
    return events_.done(job);
  }

  void end_job(std::size_t job, const Result<void>& done) {
    const std::lock_guard lock(mutex_);
    JobState& state = states_[job];
    --state.running;
    ++changes_;
    changed_.notify_all();
    if (done) {
      state.over = true;
      state.file.reset();
      return;
    }
    const bool again = done.error().code == Code::kCorrupt && ++state.digests_wrong < kDigestTries;
    const Result<void> forgotten =
        done.error().code == Code::kCorrupt ? state.file->forget() : Result<void>();
    if (!again || !forgotten) {
      fail(done.error());
      return;
    }
    list_pieces(job);
  }

  /// With the lock. The first error is that of the transfer.
  void fail(const Error& error) {
    if (!failed_ && !(error.code == Code::kCancelled && stop_.stop_requested())) {
      failed_ = error;
    }
    stop_.request_stop();
  }

  Source& source_;
  std::span<const Job> jobs_;
  const TransferOptions& options_;
  const TransferEvents& events_;
  RateLimit limit_;
  std::stop_source stop_{};

  std::mutex mutex_{};
  std::condition_variable_any changed_{};
  std::uint64_t changes_ = 0;
  std::vector<JobState> states_;
  std::size_t first_ = 0;  ///< All before are over.
  std::optional<Error> failed_{};
};

}  // namespace

Result<void> transfer(Source& source,
                      std::span<const Job> jobs,
                      const TransferOptions& options,
                      const TransferEvents& events,
                      const std::stop_token& stop) {
  return Transfer(source, jobs, options, events).run(stop);
}

}  // namespace heddle::fetch
