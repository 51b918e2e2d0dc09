#include "node/manager_node.h"

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>

#include "base/log.h"
#include "cluster/election.h"
#include "cluster/mirror.h"
#include "cluster/registry.h"
#include "manager/load_records.h"
#include "manager/loop_lag.h"
#include "manager/setup.h"
#include "net/listener.h"
#include "node/roster.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// Of the record that the leader renews.
constexpr const char* kLeaderKey = "leader";
/// Of the record with the configuration that was applied.
constexpr const char* kConfigurationKey = "configuration";

/// Later means greater, also after a restart.
std::uint64_t new_revision() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

class ManagerNode::Impl {
 public:
  Impl(const asio::any_io_executor& executor,
       ClusterText cluster,
       const NodeSelf& self,
       Metrics& metrics)
      : executor_(executor),
        cluster_(std::move(cluster)),
        self_(self),
        metrics_(metrics),
        lag_(executor_, metrics) {}

  Result<void> begin() {
    auto listener = net::Listener::open(
        executor_,
        self_.listen,
        self_.self,
        {net::Role::kGateway},
        {.on_peer = [this](std::unique_ptr<net::HostLink> link,
                           const net::Peer& peer) { accept(std::move(link), peer); },
         .on_refused = log_refused});
    if (!listener) {
      return listener.error();
    }
    listener_ = std::move(*listener);
    // Now rather than when it is elected, as it waits for the disk.
    const config::Config& config = cluster_.config;
    loads_.open(config.data_dir, config.planner.window, config.planner.day);
    const std::string& url = cluster_.config.cluster->registry;
    if (!url.empty()) {
      Result<std::shared_ptr<cluster::Registry>> registry = cluster::open_registry(executor_, url);
      if (!registry) {
        return registry.error();
      }
      registry_ = std::move(*registry);
    }
    roster_.emplace(executor_, *cluster_.config.cluster, registry_, [this] {
      if (leader_) {
        leader_->update_roster();
      }
    });
    if (!registry_) {
      return lead(self_.self.incarnation);
    }
    applied_.emplace(executor_, registry_, kConfigurationKey, [this] { take_applied(); });
    election_.emplace(
        executor_,
        registry_,
        kLeaderKey,
        self_.name,
        net::Address{.host = self_.listen.host, .port = listener_->port()}.text(),
        cluster::ElectionHandlers{
            .elected = [this](cluster::Term term) { take_office(term); },
            .lost = [this](cluster::election::Why why,
                           std::string_view said) { lose_office(why, std::string(said)); },
            .leader = [this](const cluster::election::Leader& leader) { follow(leader); }});
    // Hosts may have seen terms that the registry has lost: all of them were lower than this.
    election_->heard_of(self_.self.incarnation);
    return {};
  }

  Result<void> reconfigure(ClusterText cluster) {
    if (const cluster::Record* const record = applied_record()) {
      // What was applied holds; of the file only what is this process's own counts.
      Result<config::Config> both = with_cluster(cluster.config, record->value);
      if (!both) {
        return both.error();
      }
      log::warning("models are those of the configuration that was applied, not of the file");
      cluster.text = record->value;
      cluster.config = std::move(*both);
    }
    return take_over(std::move(cluster));
  }

  void leave(std::function<void()> done) {
    leader_.reset();
    if (!election_) {
      done();
      return;
    }
    asio::co_spawn(executor_, election_->leave(), [done](std::exception_ptr /*none*/) { done(); });
  }

  [[nodiscard]] std::vector<std::string> troubles() const {
    if (leader_ || !leads_.empty()) {
      return {};
    }
    return {"no manager leads, as far as is known here"};
  }

  void publish(Metrics& metrics) const {
    metrics.set(
        "heddle_manager_leads", "1 while this manager leads the cluster.", {}, leader_ ? 1 : 0);
    metrics.set("heddle_manager_past_windows",
                "Windows of models' past loads that forecasts rest on, while this manager leads.",
                {},
                leader_ ? static_cast<double>(loads_.book().size()) : 0);
    std::array<double, 3> counts{};
    for (const core::HostEntry& host :
         leader_ ? leader_->hosts() : std::vector<core::HostEntry>{}) {
      counts.at(static_cast<std::size_t>(host.presence)) += 1;
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      metrics.set("heddle_manager_hosts",
                  "Hosts by how they stand to this manager, while it leads.",
                  {{"state", std::string(name(static_cast<core::HostPresence>(i)))}},
                  counts.at(i));
    }
  }

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }

 private:
  // ---- What was applied ----

  [[nodiscard]] const cluster::Record* applied_record() const {
    if (!applied_) {
      return nullptr;
    }
    const auto found = applied_->records().find(kConfigurationKey);
    return found == applied_->records().end() ? nullptr : &found->second;
  }

  /// It is there, has changed, or was there when this process began.
  void take_applied() {
    const cluster::Record* const record = applied_record();
    if (record == nullptr || record->value == cluster_.text) {
      return;
    }
    Result<config::Config> both = with_cluster(cluster_.config, record->value);
    const Result<void> done =
        both ? take_over(
                   {.revision = new_revision(), .text = record->value, .config = std::move(*both)})
             : Result<void>(both.error());
    if (done) {
      log::info("the applied configuration is taken over");
    } else {
      log::error("the applied configuration cannot be taken over", {{"why", done.error().message}});
    }
  }

  Result<void> take_over(ClusterText cluster) {
    if (leader_) {
      if (const Result<void> done = leader_->reconfigure(cluster); !done) {
        return done;
      }
    }
    cluster_ = std::move(cluster);
    return {};
  }

  /// Nothing is changed before it is known that all of it can be taken over.
  void apply(std::string text, bool dry_run, std::function<void(Result<void>)> done) {
    const Result<config::Config> both = with_cluster(cluster_.config, text);
    if (!both) {
      done(both.error());
      return;
    }
    if (const Result<void> possible = manager::check_reload(cluster_.config, *both); !possible) {
      done(possible);
      return;
    }
    if (dry_run) {
      done({});
      return;
    }
    if (!registry_) {
      done(Error{.code = Code::kFailedPrecondition,
                 .message = "without cluster.registry nothing can be applied: change the manager's "
                            "file, and send it SIGHUP"});
      return;
    }
    const cluster::Record* const record = applied_record();
    asio::co_spawn(executor_,
                   put(registry_, record == nullptr ? 0 : record->revision, std::move(text)),
                   [done = std::move(done)](std::exception_ptr /*none*/, Result<void> put) {
                     done(std::move(put));
                   });
  }

  /// The watch tells of it.
  static asio::awaitable<Result<void>> put(std::shared_ptr<cluster::Registry> registry,
                                           cluster::Revision expected,
                                           std::string text) {
    const Result<cluster::Revision> done =
        co_await registry->put_if(kConfigurationKey, expected, std::move(text));
    if (!done && done.error().code == Code::kFailedPrecondition) {
      co_return Error{.code = Code::kFailedPrecondition,
                      .message =
                          "another configuration was applied at the same time; look at "
                          "it, and apply this one again"};
    }
    co_return done ? Result<void>() : done.error();
  }

  // ---- Leading ----

  Result<void> lead(cluster::Term term) {
    auto leader = Leader::create(executor_,
                                 cluster_,
                                 *roster_,
                                 self_,
                                 term,
                                 metrics_,
                                 loads_,
                                 {.apply =
                                      [this](std::string text, bool dry_run, auto done) {
                                        apply(std::move(text), dry_run, std::move(done));
                                      },
                                  .later_term = [this](std::uint64_t term) { hear_of(term); },
                                  .alone = [this] { stand_alone(); }});
    if (!leader) {
      return leader.error();
    }
    leader_ = std::move(*leader);
    return {};
  }

  /// Elected while it leads on, it goes on as it is: hosts know of no later term than its first.
  void take_office(cluster::Term term) {
    log::info("this manager leads", {{"term", term}});
    term_ = term;
    unconfirmed_ = false;
    if (!leader_) {
      begin_to_lead();
    }
  }

  void begin_to_lead() {
    led_term_ = term_;
    if (const Result<void> done = lead(term_); !done) {
      log::error("this manager cannot lead", {{"why", done.error().message}});
      election_.reset();  // Another one may.
    }
  }

  /// Where it is only the registry that is away, nobody else is elected, and all goes on. If this
  /// process alone is cut off from it, the next leader takes the hosts away, by its term.
  void lose_office(cluster::election::Why why, const std::string& said) {
    if (why != cluster::election::Why::kUnreached || !leader_) {
      step_down(said);
      return;
    }
    unconfirmed_ = true;
    log::warning("this manager leads on, though the registry does not answer", {{"term", term_}});
  }

  void follow(const cluster::election::Leader& leader) {
    leads_ = leader.name;
    if (unconfirmed_ && !leader.name.empty() && leader.name != self_.name) {
      step_down(leader.name + " leads");
    }
  }

  /// No host follows in this term. Where the registry had forgotten later ones, as after a restore,
  /// one after them is had; where another leads, it is known sooner.
  void hear_of(cluster::Term term) {
    if (leader_ && election_ && led_term_ < term) {
      log::warning("hosts follow later terms only", {{"term", led_term_}, {"want", term}});
      election_->heard_of(term);
    }
  }

  /// No host is linked any more: those of a cluster with another leader are with that one.
  void stand_alone() {
    if (leader_ && unconfirmed_) {
      step_down("no host is linked any more, and the registry does not answer");
    } else if (leader_ && led_term_ < term_) {
      leader_.reset();
      begin_to_lead();
    }
  }

  void step_down(const std::string& why) {
    log::warning("this manager leads no longer", {{"why", why}});
    unconfirmed_ = false;
    leader_.reset();
  }

  void accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (leader_) {
      leader_->accept(std::move(link), peer);
    } else {
      link->end("manager " + self_.name + " stands by; " +
                (leads_.empty() ? "nobody leads yet" : leads_ + " leads"));
    }
  }

  asio::any_io_executor executor_;
  ClusterText cluster_;
  NodeSelf self_;
  Metrics& metrics_;
  manager::LoopLag lag_;
  std::string leads_{};         ///< Who, as the registry has it.
  cluster::Term term_ = 0;      ///< In which this one was elected last,
  cluster::Term led_term_ = 0;  ///< and began to lead last.
  bool unconfirmed_ = false;    ///< It leads, and the registry does not answer.
  std::shared_ptr<cluster::Registry> registry_{};
  std::optional<Roster> roster_{};
  std::optional<cluster::Mirror> applied_{};
  manager::LoadRecords loads_{};
  std::unique_ptr<Leader> leader_{};
  std::unique_ptr<net::Listener> listener_{};
  std::optional<cluster::Election> election_{};
};

Result<std::unique_ptr<ManagerNode>> ManagerNode::create(const asio::any_io_executor& executor,
                                                         ClusterText cluster,
                                                         const NodeSelf& self,
                                                         Metrics& metrics) {
  auto impl = std::make_unique<Impl>(executor, std::move(cluster), self, metrics);
  if (const Result<void> begun = impl->begin(); !begun) {
    return begun.error();
  }
  metrics.on_scrape([node = impl.get()](Metrics& all) { node->publish(all); });
  return std::unique_ptr<ManagerNode>(new ManagerNode(std::move(impl)));
}

ManagerNode::ManagerNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ManagerNode::~ManagerNode() = default;

std::vector<std::string> ManagerNode::troubles() const {
  return impl_->troubles();
}
std::uint16_t ManagerNode::port() const {
  return impl_->port();
}
Result<void> ManagerNode::reconfigure(ClusterText cluster) {
  return impl_->reconfigure(std::move(cluster));
}
void ManagerNode::leave(std::function<void()> done) {
  impl_->leave(std::move(done));
}

}  // namespace heddle::node
