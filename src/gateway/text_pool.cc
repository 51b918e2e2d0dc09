#include "gateway/text_pool.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// A work on more text than this takes a thread for longer than short ones should wait for it:
/// tokenising does 3 MB/s.
constexpr std::size_t kShortBytes = 64U << 10U;
constexpr std::size_t kWorksMax = 1024;                          ///< Of a client.
constexpr std::size_t kBytesMax = std::size_t{64} << 20U;        ///< Of a client.
constexpr std::size_t kBytesOfAllMax = std::size_t{256} << 20U;  ///< Of all of them.

/// A handler, which can only be moved, as a function.
template <class Handler>
std::function<void(bool)> shared(Handler handler) {
  return [handler = std::make_shared<Handler>(std::move(handler))](bool gone) { (*handler)(gone); };
}

}  // namespace

struct TextPool::Work {
  TextOwner owner{};
  std::size_t bytes = 0;
  bool admitted = false;  ///< And so in held_; else it is the house's own.
  std::function<bool()> step{};
  /// Called on the loop, with whether the client had gone before all was done.
  std::function<void(bool)> done{};
  /// The loop has work for as long as somebody waits for a thread.
  asio::executor_work_guard<asio::io_context::executor_type> guard;

  [[nodiscard]] bool is_long() const { return bytes > kShortBytes; }
  [[nodiscard]] bool gone() const { return owner.gone && owner.gone->load(); }
};

TextPool::TextPool(asio::io_context& loop, std::size_t threads)
    : loop_(loop), long_most_(std::max<std::size_t>(threads, 2) - 1), threads_(threads) {}

TextPool::~TextPool() {
  threads_.stop();
  threads_.join();
}

Result<void> TextPool::admit(const std::string& client, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto known = held_.find(client);
  const Held held = known == held_.end() ? Held{} : known->second;
  if (held.works > 0 && (held.works >= kWorksMax || held.bytes + bytes > kBytesMax)) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "this client has " + std::to_string(held.works) + " texts of " +
                            std::to_string(held.bytes) + " bytes waiting to be read, and at most " +
                            std::to_string(kWorksMax) + " of " + std::to_string(kBytesMax) +
                            " bytes are taken at once; try again later"};
  }
  if (held_bytes_ > 0 && held_bytes_ + bytes > kBytesOfAllMax) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "texts of " + std::to_string(held_bytes_) +
                            " bytes are waiting to be read, and at most " +
                            std::to_string(kBytesOfAllMax) +
                            " bytes are taken at once; try again later"};
  }
  held_[client] = {.works = held.works + 1, .bytes = held.bytes + bytes};
  held_bytes_ += bytes;
  return {};
}

void TextPool::release(const Work& work) {
  const auto held = held_.find(work.owner.client);
  held->second.bytes -= work.bytes;
  held_bytes_ -= work.bytes;
  if (--held->second.works == 0) {
    held_.erase(held);
  }
}

void TextPool::add(std::shared_ptr<Work> work) {
  {
    const std::lock_guard lock(mutex_);
    FairQueue<std::shared_ptr<Work>>& queue = work->is_long() ? long_ : short_;
    const std::string client = work->owner.client;
    queue.push_back(client, std::move(work));
  }
  asio::post(threads_, [this] { turn(); });
}

std::shared_ptr<TextPool::Work> TextPool::next() {
  const bool may_be_long = !long_.empty() && long_running_ < long_most_;
  if (may_be_long && (long_next_ || short_.empty())) {
    long_next_ = false;
    ++long_running_;
    return std::move(*long_.pop());
  }
  long_next_ = true;
  return short_.empty() ? nullptr : std::move(*short_.pop());
}

void TextPool::put_back(std::shared_ptr<Work> work) {
  FairQueue<std::shared_ptr<Work>>& queue = work->is_long() ? long_ : short_;
  const std::string client = work->owner.client;
  queue.push_front(client, std::move(work));
}

/// Does steps for as long as there are some. One that cannot run, as too many long ones do, is
/// taken by the thread on which one of these ends.
void TextPool::turn() {
  std::unique_lock lock(mutex_);
  while (std::shared_ptr<Work> work = next()) {
    lock.unlock();
    bool gone = work->gone();
    const bool ended = gone || work->step();
    gone = gone || (!ended && work->gone());
    lock.lock();
    long_running_ -= work->is_long() ? 1 : 0;
    if (!ended && !gone) {
      put_back(std::move(work));
      continue;
    }
    if (work->admitted) {
      release(*work);
    }
    lock.unlock();
    auto loop = work->guard.get_executor();
    asio::post(loop, [work = std::move(work), gone] { work->done(gone); });
    lock.lock();
  }
}

Task<Result<void>> TextPool::run_steps(TextOwner owner,
                                       std::size_t bytes,
                                       std::function<bool()> step) {
  const Result<void> admitted = admit(owner.client, bytes);
  if (!admitted) {
    co_return admitted.error();
  }
  auto begin = [this, &owner, bytes, &step](auto done) {
    add(std::make_shared<Work>(Work{.owner = std::move(owner),
                                    .bytes = bytes,
                                    .admitted = true,
                                    .step = std::move(step),
                                    .done = shared(std::move(done)),
                                    .guard = asio::make_work_guard(loop_)}));
  };
  const auto [gone] =
      co_await asio::async_initiate<const AwaitToken, void(bool)>(std::move(begin), kAwait);
  if (gone) {
    co_return Error{.code = Code::kCancelled, .message = "the client hung up"};
  }
  co_return Result<void>();
}

Task<void> TextPool::run(std::function<void()> work) {
  std::function<bool()> step = [work = std::move(work)] {
    work();
    return true;
  };
  auto begin = [this, &step](auto done) {
    add(std::make_shared<Work>(Work{.bytes = kShortBytes + 1,
                                    .step = std::move(step),
                                    .done = shared(std::move(done)),
                                    .guard = asio::make_work_guard(loop_)}));
  };
  (void)co_await asio::async_initiate<const AwaitToken, void(bool)>(std::move(begin), kAwait);
}

}  // namespace heddle::gateway
