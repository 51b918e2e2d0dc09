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
      pool->threads_.emplace_back([self = pool.get(), member, core] {
        (void)confine(only(core));  // Was possible a moment ago; elsewhere the work is as right.
        self->serve(member);
      });
    }
    (void)confine(only(cores[0]));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
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
  loop_ = loop;
  unfinished_.store(size_ - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run_share(0);
  for (int left = size_ - 1; left != 0; left = unfinished_.load(std::memory_order_acquire)) {
    wait_while(unfinished_, left);
  }
}

/// Runs the part of the loop that is `member`'s: an even share of its grains.
void ThreadPool::run_share(int member) const {
  const std::int64_t grains = (loop_.count + loop_.grain - 1) / loop_.grain;
  const std::int64_t begin = grains * member / size_ * loop_.grain;
  const std::int64_t end = std::min(grains * (member + 1) / size_ * loop_.grain, loop_.count);
  if (begin < end) {
    loop_.call(loop_.body, begin, end, member);
  }
}

/// What a thread of the pool does: its share of each round, until the pool stops.
void ThreadPool::serve(int member) {
  for (std::uint32_t round = 0;; ++round) {
    wait_while(round_, round);
    if (stopping_.load(std::memory_order_relaxed)) {
      return;
    }
    run_share(member);
    if (unfinished_.fetch_sub(1, std::memory_order_release) == 1) {
      unfinished_.notify_one();
    }
  }
}

}  // namespace heddle::device
