#include "gateway/text_pool.h"

#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// Tokenising does 3 MB/s; two threads that sleep take some 100 µs to wake each other.
constexpr std::size_t kAtOnceBytes = 512;

}  // namespace

TextPool::TextPool(asio::io_context& loop, std::size_t threads) : loop_(loop), threads_(threads) {}

TextPool::~TextPool() {
  threads_.stop();
  threads_.join();
}

Task<void> TextPool::run(std::function<void()> work) {
  auto begin = [this, &work](auto done) {
    // The loop has work for as long as somebody waits for a thread.
    asio::post(threads_,
               [&work, done = std::move(done), guard = asio::make_work_guard(loop_)]() mutable {
                 work();
                 asio::post(guard.get_executor(), std::move(done));
               });
  };
  co_await asio::async_initiate<const AwaitToken, void()>(std::move(begin), kAwait);
}

Task<void> TextPool::run_text(std::size_t body_bytes, std::function<void()> work) {
  if (body_bytes <= kAtOnceBytes) {
    work();
    return nothing_to_wait_for();
  }
  return run(std::move(work));
}

}  // namespace heddle::gateway
