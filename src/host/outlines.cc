#include "host/outlines.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/units.h"
#include "fetch/url.h"
#include "policy/backoff.h"

namespace heddle::host {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kAtOnce = 4;
/// Until a source that has failed is asked again.
constexpr Duration kAgainFirst = std::chrono::seconds(1);
constexpr Duration kAgainMost = std::chrono::seconds(60);
/// Of one request: what fails for longer is said, and tried again later.
constexpr int kTries = 2;

/// Of what is small nothing is shown but what goes wrong.
class Watch final : public fetch::PullWatch {
 public:
  explicit Watch(std::string source) : source_(std::move(source)) {}
  void waits() override {
    log::info("another process fetches the model; its end is awaited", {{"from", source_}});
  }
  void removed(const std::vector<std::string>& /*models*/) override {}
  void begins(std::span<const fetch::Job> /*files*/,
              std::span<const fetch::Object> /*left_out*/) override {}
  void moved(std::size_t /*file*/, std::uint64_t /*bytes*/) override {}
  void checking(std::size_t /*file*/) override {}
  void came(std::size_t /*file*/) override {}
  void retries(const std::string& why, Duration wait) override {
    log::debug("a request is made again",
               {{"from", source_}, {"why", why}, {"in", format_duration(wait)}});
  }

 private:
  std::string source_;
};

}  // namespace

Outlines::Outlines(const asio::any_io_executor& executor,
                   fetch::PullOptions options,
                   Learnt on_learnt)
    : executor_(executor),
      options_(std::move(options)),
      on_learnt_(std::move(on_learnt)),
      threads_(kAtOnce) {
  options_.source.retry.tries = kTries;
}

Outlines::~Outlines() {
  alive_.reset();
  stop_.request_stop();
  threads_.stop();
  threads_.join();
}

void Outlines::want(const std::set<std::string>& sources) {
  std::erase_if(asked_, [&](const auto& entry) {
    return !sources.contains(entry.first) && !entry.second->running;
  });
  for (const std::string& source : sources) {
    if (!asked_.contains(source)) {
      asked_[source] = std::make_unique<Asked>(executor_);
      ask(source);
    }
  }
}

void Outlines::set_peers(const Hosts& hosts, const FindPeer& find) {
  const Hosts before = std::exchange(hosts_, hosts);
  peers_.clear();
  for (const auto& [source, holders] : hosts_) {
    for (const core::GroupHost& host : holders) {
      peers_[source].push_back(find(host));
    }
    const auto asked = asked_.find(source);
    const auto known = before.find(source);
    if (asked != asked_.end() && (known == before.end() || known->second != holders) &&
        (asked->second->failures > 0 || asked->second->running)) {
      ask_again(source);
    }
  }
}

void Outlines::ask_again(const std::string& source) {
  const auto found = asked_.find(source);
  if (found == asked_.end()) {
    return;
  }
  if (found->second->running) {
    found->second->stale = true;
  } else {
    ask(source);
  }
}

void Outlines::ask(const std::string& source) {
  Asked& asked = *asked_.at(source);
  asked.running = true;
  asked.again.cancel();
  fetch::PullOptions options = options_;
  if (const auto peers = peers_.find(source); peers != peers_.end()) {
    options.peers = peers->second;
  }
  asio::post(threads_,
             [source,
              options = std::move(options),
              stop = stop_.get_token(),
              executor = executor_,
              alive = std::weak_ptr(alive_)] {
               Watch watch(fetch::shown(source));
               Result<fetch::Outline> outline = fetch::fetch_outline(source, options, watch, stop);
               asio::post(executor, [alive, source, outline = std::move(outline)] {
                 if (const std::shared_ptr<Outlines*> self = alive.lock()) {
                   (*self)->learnt(source, outline);
                 }
               });
             });
}

void Outlines::learnt(const std::string& source, const Result<fetch::Outline>& outline) {
  const auto found = asked_.find(source);
  if (found == asked_.end()) {
    return;
  }
  Asked& asked = *found->second;
  asked.running = false;
  asked.failures = outline ? 0 : asked.failures + 1;
  if (std::exchange(asked.stale, false)) {
    ask(source);
  } else if (!outline) {
    asked.again.expires_after(policy::backoff(asked.failures, kAgainFirst, kAgainMost));
    asked.again.async_wait([alive = std::weak_ptr(alive_), source](const auto& stopped) {
      const std::shared_ptr<Outlines*> self = alive.lock();
      if (!stopped && self != nullptr) {
        (*self)->ask_again(source);
      }
    });
  }
  on_learnt_(source, outline);
}

}  // namespace heddle::host
