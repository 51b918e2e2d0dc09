#include "gateway/grammar_trials.h"

#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "gateway/fair_queue.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// One that waits or is tried, and those who want to know.
struct Pending {
  Pending(asio::io_context& loop, Digest of, std::string who, sandbox::GrammarTrial what)
      : digest(of),
        client(std::move(who)),
        trial(std::move(what)),
        ended(loop, asio::steady_timer::time_point::max()) {}

  Digest digest;
  std::string client;  ///< Who asked first.
  sandbox::GrammarTrial trial;
  asio::steady_timer ended;  ///< Cancelled at the end, which wakes everybody.
  std::optional<Result<void>> result{};
};

using PendingPtr = std::shared_ptr<Pending>;

Task<Result<void>> outcome(PendingPtr pending) {
  while (!pending->result) {
    co_await pending->ended.async_wait(kAwait);
  }
  co_return *pending->result;
}

/// What makes two grammars for two models the same.
Digest digest_of(const SipKey& secret, const sandbox::GrammarTrial& trial) {
  const std::string bytes = sandbox::encode(sandbox::Question{.trial = trial});
  return siphash(secret, std::as_bytes(std::span(bytes)));
}

/// How the last grammars went.
class Outcomes {
 public:
  explicit Outcomes(std::size_t kept) : kept_(kept) {}

  [[nodiscard]] const Result<void>* find(const Digest& digest) {
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) {
      return nullptr;
    }
    order_.splice(order_.begin(), order_, found->second);
    return &found->second->second;
  }
  void keep(const Digest& digest, const Result<void>& result) {
    order_.emplace_front(digest, result);
    by_digest_[digest] = order_.begin();
    if (order_.size() > kept_) {
      by_digest_.erase(order_.back().first);
      order_.pop_back();
    }
  }

 private:
  using Order = std::list<std::pair<Digest, Result<void>>>;  ///< Used last comes first.

  std::size_t kept_;
  Order order_{};
  std::map<Digest, Order::iterator> by_digest_{};
};

}  // namespace

/// Survives its owner for as long as a trial comes back to the loop.
struct GrammarTrials::State : std::enable_shared_from_this<State> {
  State(asio::io_context& on, std::shared_ptr<sandbox::Trier> by, SipKey key, Bounds within)
      : loop(on), trier(std::move(by)), secret(key), bounds(within), outcomes(within.kept) {}

  PendingPtr add(const Digest& digest, const std::string& client, sandbox::GrammarTrial trial);
  void next();
  void end(const PendingPtr& pending, const Result<void>& result);

  asio::io_context& loop;
  std::shared_ptr<sandbox::Trier> trier;
  SipKey secret;
  Bounds bounds;
  Outcomes outcomes;
  std::map<Digest, PendingPtr> pending{};          ///< Those that wait, and the one that runs.
  std::map<std::string, std::size_t> of_client{};  ///< How many of them each has.
  FairQueue<PendingPtr> queue{};                   ///< Those that wait.
  bool running = false;
  asio::thread_pool thread{1};
};

PendingPtr GrammarTrials::State::add(const Digest& digest,
                                     const std::string& client,
                                     sandbox::GrammarTrial trial) {
  const auto added = std::make_shared<Pending>(loop, digest, client, std::move(trial));
  pending[digest] = added;
  ++of_client[client];
  queue.push_back(client, added);
  next();
  return added;
}

void GrammarTrials::State::next() {
  std::optional<PendingPtr> chosen = running ? std::nullopt : queue.pop();
  if (!chosen) {
    return;
  }
  running = true;
  // The loop has work for as long as somebody waits. What they wait for stays the loop's.
  auto work = [state = weak_from_this(),
               by = trier,
               chosen = std::move(*chosen),
               guard = asio::make_work_guard(loop)]() mutable {
    Result<void> result = by->try_grammar(chosen->trial);
    asio::post(guard.get_executor(),
               [state, chosen = std::move(chosen), result = std::move(result)] {
                 if (const std::shared_ptr<State> self = state.lock()) {
                   self->end(chosen, result);
                 }
               });
  };
  asio::post(thread, std::move(work));
}

void GrammarTrials::State::end(const PendingPtr& ended, const Result<void>& result) {
  // What says nothing about the grammar is no reason to refuse the next one like it.
  if (result || result.error().code == Code::kInvalidArgument) {
    outcomes.keep(ended->digest, result);
  }
  pending.erase(ended->digest);
  if (--of_client[ended->client] == 0) {
    of_client.erase(ended->client);
  }
  ended->result = result;
  ended->ended.cancel();
  running = false;
  next();
}

GrammarTrials::GrammarTrials(asio::io_context& loop,
                             std::shared_ptr<sandbox::Trier> trier,
                             SipKey secret,
                             Bounds bounds)
    : state_(std::make_shared<State>(loop, std::move(trier), secret, bounds)) {}

GrammarTrials::~GrammarTrials() {
  state_->trier->stop();
  state_->thread.stop();
  state_->thread.join();
}

Task<Result<void>> GrammarTrials::check(const std::string& client, sandbox::GrammarTrial trial) {
  const Digest digest = digest_of(state_->secret, trial);
  if (const Result<void>* known = state_->outcomes.find(digest)) {
    return Result<void>(*known);
  }
  const auto found = state_->pending.find(digest);
  if (found != state_->pending.end()) {
    return outcome(found->second);
  }
  const auto own = state_->of_client.find(client);
  const std::size_t waiting = own == state_->of_client.end() ? 0 : own->second;
  if (waiting >= state_->bounds.waiting_per_client) {
    return Result<void>(Error{Code::kResourceExhausted,
                              "you have " + std::to_string(waiting) +
                                  " other grammars that wait to be compiled, which is the limit; "
                                  "try again later"});
  }
  if (state_->pending.size() >= state_->bounds.waiting) {
    return Result<void>(Error{Code::kResourceExhausted,
                              std::to_string(state_->pending.size()) +
                                  " grammars wait to be compiled, which is the limit; try again "
                                  "later"});
  }
  return outcome(state_->add(digest, client, std::move(trial)));
}

}  // namespace heddle::gateway
