#include "node/membership.h"

#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cluster/membership.h"
#include "cluster/registry.h"
#include "node/roster.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// Between tries to join.
constexpr Duration kPause = std::chrono::seconds(1);
/// The record of an earlier life of a name is gone by then; else another process has the name.
constexpr Duration kEarlierLife = std::chrono::seconds(10);

void end_this_process(std::string_view why) {
  log::error("another process has taken the name of this one, which ends",
             {{"why", std::string(why)}});
  std::raise(SIGTERM);
}

/// Tries until it is a member, or cannot become one.
asio::awaitable<void> join(asio::any_io_executor executor,
                           std::shared_ptr<cluster::Registry> registry,
                           cluster::MemberOptions options,
                           std::optional<Result<std::unique_ptr<cluster::Member>>>& joined) {
  const Instant taken_until = steady_now() + kEarlierLife;
  std::string said;
  while (true) {
    std::function<void(std::string_view)> gone = end_this_process;
    auto member = co_await cluster::Member::join(executor, registry, options, std::move(gone));
    const Code code = member ? Code::kCancelled : member.error().code;
    const bool away = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    const bool taken = code == Code::kFailedPrecondition && steady_now() < taken_until;
    if (!away && !taken) {
      joined = std::move(member);
      co_return;
    }
    if (said != member.error().message) {
      said = member.error().message;
      log::warning("this process has not joined its cluster yet", {{"why", said}});
    }
    asio::steady_timer pause(executor, kPause);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

}  // namespace

class Membership::Impl {
 public:
  Impl(asio::any_io_executor executor, std::unique_ptr<cluster::Member> member)
      : executor_(std::move(executor)), member_(std::move(member)) {}

  void leave(std::function<void()> done) {
    if (!member_) {
      done();
      return;
    }
    asio::co_spawn(executor_,
                   member_->leave(),
                   [done = std::move(done)](std::exception_ptr /*none*/, const Result<void>&) {
                     done();  // A record that stays expires.
                   });
  }

 private:
  asio::any_io_executor executor_;
  std::unique_ptr<cluster::Member> member_;  ///< None where the configuration lists this process.
};

Result<std::unique_ptr<Membership>> Membership::begin(asio::io_context& loop,
                                                      const config::Config& config,
                                                      net::Role role,
                                                      NodeSelf& self) {
  const config::ClusterConfig& cluster = *config.cluster;
  std::unique_ptr<cluster::Member> member;
  const bool hosts = role == net::Role::kAgent;
  if (hosts ? hosts_join(cluster) : gateways_join(cluster)) {
    auto registry = cluster::open_registry(loop.get_executor(), cluster.registry);
    if (!registry) {
      return registry.error();
    }
    std::optional<Result<std::unique_ptr<cluster::Member>>> joined;
    cluster::MemberOptions options{.role = hosts ? cluster::Role::kHost : cluster::Role::kGateway,
                                   .name = self.name,
                                   .address = hosts ? self.address.text() : ""};
    asio::co_spawn(loop,
                   join(loop.get_executor(), std::move(*registry), std::move(options), joined),
                   [](const std::exception_ptr& failure) { HEDDLE_CHECK(failure == nullptr); });
    while (!joined) {
      loop.run_one();
    }
    if (!*joined) {
      return joined->error();
    }
    member = std::move(**joined);
    self.number = member->identity().id;
    self.self.incarnation = member->identity().incarnation;
    log::info("this process has joined its cluster",
              {{"number", self.number}, {"incarnation", self.self.incarnation}});
  }
  return std::unique_ptr<Membership>(
      new Membership(std::make_unique<Impl>(loop.get_executor(), std::move(member))));
}

Membership::Membership(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Membership::~Membership() = default;

void Membership::leave(std::function<void()> done) {
  impl_->leave(std::move(done));
}

}  // namespace heddle::node
