#pragma once

#include <cstddef>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "gateway/task.h"

namespace heddle::gateway {

/// A few threads for what would hold up the loop: templates, tokenising, opening tokenizers.
class TextPool {
 public:
  TextPool(boost::asio::io_context& loop, std::size_t threads);
  /// Waits for the work that runs; what has not begun is dropped.
  ~TextPool();
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  /// Does `work` on one of the threads and comes back to the loop. `work` may use references to
  /// what the caller's coroutine holds.
  Task<void> run(std::function<void()> work);
  /// The same for the template and tokens of a request with a body of so many bytes: where these
  /// take less time than to go to a thread and to come back, it does the work at once.
  Task<void> run_text(std::size_t body_bytes, std::function<void()> work);

 private:
  boost::asio::io_context& loop_;
  boost::asio::thread_pool threads_;
};

}  // namespace heddle::gateway
