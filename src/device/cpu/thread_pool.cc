#include "device/cpu/thread_pool.h"

#include <algorithm>
#include <string>

#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace heddle::device {
namespace {

/// Between two operations of a step there are microseconds; waking a sleeper takes tens of them.
/// About as long is spun before sleeping.
constexpr int kSpins = 2000;

/// A loop is cut so finely that a member which loses its core holds up little of it.
constexpr int kPiecesPerMember = 8;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `value` is no longer `old`: soon if it changes soon, else by way of the kernel.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

cpu_set_t only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return set;
}

/// Confines the calling thread to `set`; false if the process may use none of it.
bool confine(const cpu_set_t& set) {
  return ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set) == 0;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(std::span<const int> cores) {
  cpu_set_t before;
  CPU_ZERO(&before);
  HEDDLE_CHECK(::pthread_getaffinity_np(::pthread_self(), sizeof(before), &before) == 0);
  for (const int core : cores) {
    // A thread may leave the set it inherited but not the container's, so trying is the only test.
    if (core < 0 || core >= CPU_SETSIZE || !confine(only(core))) {
      (void)confine(before);
      return Error{.code = Code::kInvalidArgument,
                   .message = "pin a thread to core " + std::to_string(core) +
                              ": this process may not use it"};
    }
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(std::max(1, static_cast<int>(cores.size()))));
  if (!cores.empty()) {
    pool->affinity_before_ = before;
    for (int member = 1; member < pool->size_; ++member) {
      const int core = cores[static_cast<std::size_t>(member)];
      Result<Thread> thread = Thread::start({.name = "kernels"}, [self = pool.get(), member, core] {
        (void)confine(only(core));  // Was possible a moment ago; elsewhere the work is as right.
        self->serve(member);
      });
      if (!thread) {
        return thread.error();
      }
      pool->threads_.push_back(std::move(*thread));
    }
    (void)confine(only(cores[0]));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  threads_.clear();  // Each is joined.
  if (affinity_before_) {
    (void)confine(*affinity_before_);
  }
}

void ThreadPool::run(const Loop& loop) {
  HEDDLE_DCHECK(loop.count >= 0 && loop.grain > 0);
  if (size_ == 1 || loop.count <= loop.grain) {
    if (loop.count > 0) {
      loop.call(loop.body, 0, loop.count, 0);
    }
    return;
  }
  const std::int64_t grains = (loop.count + loop.grain - 1) / loop.grain;
  loop_ = loop;
  pieces_ = static_cast<std::uint32_t>(
      std::min(grains, static_cast<std::int64_t>(kPiecesPerMember) * size_));
  done_.store(0, std::memory_order_relaxed);
  pieces_and_next_.store(std::uint64_t{pieces_} << 32U, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  take_pieces(0);
  for (std::uint32_t done = done_.load(std::memory_order_acquire); done != pieces_;
       done = done_.load(std::memory_order_acquire)) {
    wait_while(done_, done);
  }
}

/// Runs pieces of the loop until none is left to take.
void ThreadPool::take_pieces(int member) {
  std::uint64_t at = pieces_and_next_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(at) < at >> 32U) {
    if (!pieces_and_next_.compare_exchange_weak(
            at, at + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    const std::int64_t pieces = pieces_;
    const std::int64_t piece = static_cast<std::uint32_t>(at);
    const std::int64_t grains = (loop_.count + loop_.grain - 1) / loop_.grain;
    const std::int64_t begin = grains * piece / pieces * loop_.grain;
    const std::int64_t end = std::min(grains * (piece + 1) / pieces * loop_.grain, loop_.count);
    loop_.call(loop_.body, begin, end, member);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) {
      done_.notify_one();
    }
    at = pieces_and_next_.load(std::memory_order_acquire);
  }
}

/// What a thread of the pool does: pieces of each round, until the pool stops.
void ThreadPool::serve(int member) {
  for (std::uint32_t round = 0;;) {
    wait_while(round_, round);
    round = round_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) {
      return;
    }
    take_pieces(member);
  }
}

}  // namespace heddle::device
