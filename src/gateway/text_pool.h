#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/result.h"
#include "gateway/fair_queue.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Who wants a work on text done.
struct TextOwner {
  std::string client{};  ///< HttpRequest::client(): who has to share with others.
  /// Set once nobody waits for it; null where somebody always does.
  std::shared_ptr<const std::atomic<bool>> gone{};
};

/// A few threads for what would hold up the loop: parsing, templates, tokenising, opening
/// tokenizers.
///
/// Clients take turns, and a work that is done in steps lets the others have theirs between two of
/// them. Long works never hold all threads, so that short ones do not wait for them. As each step
/// is bounded by whoever wrote it, and few run at once, so is the memory that they take.
class TextPool {
 public:
  TextPool(boost::asio::io_context& loop, std::size_t threads);
  /// Waits for the steps that run; what is left is dropped.
  ~TextPool();
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  /// Does `work` on one of the threads, as a long one, and comes back to the loop. `work` may use
  /// references to what the caller's coroutine holds.
  Task<void> run(std::function<void()> work);

  /// Calls `step` on one thread after the other until it says that all is done, and comes back to
  /// the loop. `bytes` are those of the text, which say whether the work is long. kCancelled once
  /// the client has gone, kResourceExhausted where it has too much waiting already.
  Task<Result<void>> run_steps(TextOwner owner, std::size_t bytes, std::function<bool()> step);

 private:
  struct Work;
  /// What a client has waiting and running.
  struct Held {
    std::size_t works = 0;
    std::size_t bytes = 0;
  };

  Result<void> admit(const std::string& client, std::size_t bytes);
  void add(std::shared_ptr<Work> work);
  void turn();
  std::shared_ptr<Work> next();
  void put_back(std::shared_ptr<Work> work);
  void release(const Work& work);

  boost::asio::io_context& loop_;
  const std::size_t long_most_;  ///< Long works that may run at once.
  std::mutex mutex_{};
  // Guarded by mutex_:
  FairQueue<std::shared_ptr<Work>> short_{};
  FairQueue<std::shared_ptr<Work>> long_{};
  std::size_t long_running_ = 0;
  bool long_next_ = true;  ///< Whose turn it is where both wait.
  std::map<std::string, Held> held_{};
  std::size_t held_bytes_ = 0;

  boost::asio::thread_pool threads_;
};

}  // namespace heddle::gateway
