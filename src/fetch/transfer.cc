#include "fetch/transfer.h"

#include <algorithm>
#include <condition_variable>
#include <map>
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

/// Bytes to fetch with one request. The lower the rank, the sooner.
struct Piece {
  Range range{};
  std::uint64_t rank = 0;
};

/// How far one object is.
struct JobState {
  std::optional<PartialFile> file{};
  std::vector<Piece> left{};  ///< The next at the end.
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
        record_bytes_(std::min(options.record_bytes, options.piece_bytes)),
        limit_(options.bytes_per_second),
        states_(jobs.size()) {
    for (const Part& part : options.order) {
      for (std::uint64_t at = part.range.begin / record_bytes_ * record_bytes_; at < part.range.end;
           at += record_bytes_) {
        ranks_.emplace(std::pair(part.job, at), ranks_.size());
      }
    }
  }

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
      std::optional<std::size_t> first;
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
        if (state.left.empty() && state.running == 0) {  // Of an empty object, or all was there.
          ++state.running;
          return Task{.job = job, .finish = true};
        }
        if (!state.left.empty() &&
            (!first || state.left.back().rank < states_[*first].left.back().rank)) {
          first = job;
        }
        if (first && ranks_.empty()) {
          break;  // Later ones are opened later.
        }
      }
      if (all_over) {
        return std::nullopt;
      }
      if (first && !failed_) {
        JobState& state = states_[*first];
        const Range range = state.left.back().range;
        state.left.pop_back();
        ++state.running;
        return Task{.job = *first, .range = range};
      }
      changed_.wait(
          lock, stop_.get_token(), [this, before = changes_] { return changes_ != before; });
    }
    return std::nullopt;
  }

  /// With the lock.
  bool open(std::size_t job) {
    Result<PartialFile> file =
        PartialFile::open(jobs_[job].partial, jobs_[job].object, record_bytes_);
    if (!file) {
      fail(file.error());
      return false;
    }
    JobState& state = states_[job];
    state.file = std::move(file).value();
    if (events_.came) {
      tell_present(job);
    }
    list_pieces(job);
    return true;
  }

  void tell_present(std::size_t job) {
    std::uint64_t at = 0;
    for (const Range& missing : states_[job].file->missing()) {
      if (missing.begin > at) {
        events_.came(job, {at, missing.begin});
      }
      at = missing.end;
    }
    if (jobs_[job].object.bytes > at) {
      events_.came(job, {at, jobs_[job].object.bytes});
    }
  }

  /// What is wanted first comes first; then one object after the other.
  [[nodiscard]] std::uint64_t rank_of(std::size_t job, std::uint64_t begin) const {
    const auto found = ranks_.find({job, begin});
    return found != ranks_.end()
               ? found->second
               : ranks_.size() + (static_cast<std::uint64_t>(job) << 40U) + begin / record_bytes_;
  }

  void list_pieces(std::size_t job) {
    JobState& state = states_[job];
    state.there = state.file->present_bytes();
    state.left.clear();
    for (const Range& range : state.file->missing()) {
      state.left.push_back({.range = range, .rank = rank_of(job, range.begin)});
    }
    if (state.one_stream && !state.left.empty()) {
      state.there = 0;
      state.left = {{.range = {.begin = 0, .end = jobs_[job].object.bytes}}};
    }
    std::ranges::sort(state.left, {}, &Piece::rank);
    join(state.left);
    std::ranges::reverse(state.left);
    events_.moved(job, state.there);
  }

  /// Makes requests of pieces that follow each other.
  void join(std::vector<Piece>& pieces) const {
    std::vector<Piece> joined;
    std::uint64_t next_rank = 0;
    for (const Piece& piece : pieces) {
      const bool follows = !joined.empty() && joined.back().range.end == piece.range.begin &&
                           next_rank == piece.rank && piece.range.begin % options_.piece_bytes != 0;
      if (follows) {
        joined.back().range.end = piece.range.end;
      } else {
        joined.push_back(piece);
      }
      next_rank = piece.rank + 1;
    }
    pieces = std::move(joined);
  }

  Result<void> fetch(const Task& task) {
    JobState& state = states_[task.job];
    const std::stop_token stop = stop_.get_token();
    if (options_.turn) {
      options_.turn(stop);
    }
    std::uint64_t came = 0;
    std::uint64_t marked = task.range.begin;
    const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      limit_.take_and_wait(bytes.size(), stop);
      if (options_.took) {
        options_.took(bytes.size(), stop);
      }
      if (const Result<void> written = state.file->write(offset, bytes); !written) {
        return written;
      }
      came += bytes.size();
      add(task.job, static_cast<std::int64_t>(bytes.size()));
      return mark(task, marked, offset + bytes.size());
    };
    Result<void> done = source_.read(jobs_[task.job].object, task.range, sink, stop);
    if (!done) {
      add(task.job, -static_cast<std::int64_t>(came - std::min(came, marked - task.range.begin)));
    }
    return done;
  }

  /// Notes as there what has come of a request whole, from `marked` on.
  Result<void> mark(const Task& task, std::uint64_t& marked, std::uint64_t end) {
    end = end == task.range.end ? end : end / record_bytes_ * record_bytes_;
    if (end <= marked) {
      return {};
    }
    const std::lock_guard lock(mutex_);
    if (Result<void> noted = states_[task.job].file->mark({marked, end}); !noted) {
      return noted;
    }
    if (events_.came) {
      events_.came(task.job, {marked, end});
    }
    marked = end;
    return {};
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
    const bool again =
        done.error().code == Code::kCorrupt && ++state.digests_wrong < options_.digest_tries;
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
  std::uint64_t record_bytes_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t>
      ranks_{};  ///< Of what comes first.
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
