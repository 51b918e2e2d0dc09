#include "node/gateway_node.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "gateway/model_text.h"
#include "gateway/quotas.h"
#include "manager/loop_lag.h"
#include "node/roster.h"
#include "node/text_folder.h"
#include "remote/engine_streams.h"
#include "remote/remote_hosts.h"
#include "remote/remote_manager.h"
#include "serving/front.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// With a host that sends the files from which a model's text is made.
constexpr Duration kFetchPatience = std::chrono::minutes(1);
/// Between tries to link with the same manager, at most: whoever waits for one waits for this, too.
constexpr Duration kBetweenTries = std::chrono::milliseconds(200);
/// Between tries to link with one manager and the next.
constexpr Duration kBetweenManagers = std::chrono::milliseconds(100);
/// Between reports of what keys have used of their quotas.
constexpr Duration kBetweenQuotas = std::chrono::milliseconds(250);
/// Whoever waits looks so often whether the process ends.
constexpr Duration kFetchLook = std::chrono::milliseconds(100);

}  // namespace

class GatewayNode::Impl final : public core::Serving {
 public:
  Impl(asio::io_context& loop, config::Config config, const NodeSelf& self, Metrics& metrics)
      : loop_(loop),
        config_(std::move(config)),
        self_(self),
        lag_(loop.get_executor(), metrics),
        texts_(config_.data_dir),
        next_try_(loop),
        next_quotas_(loop),
        manager_(loop.get_executor(),
                 FrontId(self.number),
                 self.self,
                 {.on_configuration = [this](std::uint64_t /*revision*/,
                                             const std::string& text) { configure(text); },
                  .on_served = [this](const remote::Served& served) { serve(served); },
                  .on_status = [this] { follow_hosts(); },
                  .on_quotas_used =
                      [this](const std::vector<core::QuotaUse>& uses) {
                        gateway_->quotas().used_elsewhere(uses, steady_now());
                      },
                  .on_down =
                      [this](const Error& /*why*/) {
                        led_ = false;
                        try_next_manager();
                      }},
                 {.backoff = {.most = kBetweenTries}}),
        hosts_(
            loop.get_executor(), self.self, manager_, [this](HostId /*host*/) { fetch_wanted(); }),
        streams_(
            loop.get_executor(), self.self, {.connector = {.backoff = {.most = kBetweenTries}}}),
        front_(loop.get_executor(), manager_, hosts_, metrics) {}

  ~Impl() override {
    ending_ = true;  // Threads of the gateway may wait for files.
    gateway_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> begin(Metrics& metrics) {
    auto gateway = gateway::Gateway::start(
        loop_,
        *this,
        metrics,
        config_,
        {.open_text = [this](const config::ModelConfig& model) { return open_text(model); },
         .grammars = sandbox_,
         .version = self_.self.build,
         .now = steady_now,
         .requests_after = first_request(FrontId(self_.number)),
         .carry = [this](HostId host,
                         ModelId model,
                         auto done) { streams_.open(host, model, std::move(done)); }});
    if (!gateway) {
      return gateway.error();
    }
    gateway_ = std::move(*gateway);
    manager_.set_front(front_, [this] { return front_.unfinished(); });
    hosts_.set_front(front_);
    std::vector<remote::HostAddress> hosts;
    for (const config::ClusterMember& host : config_.cluster->hosts) {
      hosts.push_back({.id = HostId(hosts.size() + 1),
                       .name = host.name,
                       .address = {.host = host.host, .port = host.port}});
    }
    hosts_.set_hosts(hosts);
    streams_.set_hosts(hosts);
    connect();
    share_quotas();
    return {};
  }

  [[nodiscard]] gateway::Gateway& gateway() { return *gateway_; }

  void reload(const config::Config& config) {
    const config::Config before = std::exchange(config_, config);
    config_.models = before.models;
    config_.groups = before.groups;
    config_.preload = before.preload;
    config_.planner = before.planner;
    gateway_->reload(config_);
  }

  // ---- core::Serving ----

  void start(std::shared_ptr<core::RequestRecord> record,
             std::shared_ptr<core::RequestSink> sink) override {
    front_.start(std::move(record), std::move(sink));
  }
  void finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) override {
    front_.finish_choice(request, choice, reason);
  }
  void cancel(RequestId request) override { front_.cancel(request); }
  void start_external(std::shared_ptr<core::ExternalRequest> request,
                      std::shared_ptr<core::ExternalSink> sink) override {
    front_.start_external(std::move(request), std::move(sink));
  }
  void finish_external(RequestId request) override { front_.finish_external(request); }
  void retry_external(RequestId request, bool cut) override { front_.retry_external(request, cut); }
  void load(ModelId model, std::function<void(Result<void>)> done) override {
    manager_.load(model, std::move(done));
  }
  void unload(ModelId model,
              core::EvictionReason why,
              std::function<void(Result<void>)> done) override {
    manager_.unload(model, why, std::move(done));
  }

  [[nodiscard]] std::vector<core::HostEntry> hosts() const override { return manager_.hosts(); }
  void leave(HostId host, bool leaving, std::function<void(Result<void>)> done) override {
    manager_.leave(host, leaving, std::move(done));
  }
  void apply(std::string configuration,
             bool dry_run,
             std::function<void(Result<void>)> done) override {
    manager_.apply(std::move(configuration), dry_run, std::move(done));
  }

  /// Of a model that the manager has told of, and not yet how it is, its name is known.
  [[nodiscard]] std::vector<core::ModelStatus> models() const override {
    std::vector<core::ModelStatus> all = manager_.models();
    std::erase_if(
        all, [&](const core::ModelStatus& model) { return !served_.models.contains(model.id); });
    for (const auto& [id, facts] : served_.models) {
      if (std::ranges::find(all, id, &core::ModelStatus::id) == all.end()) {
        all.push_back({.id = id, .name = facts.name, .failure = facts.served.failure});
      }
    }
    return all;
  }
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const override {
    return manager_.devices();
  }
  [[nodiscard]] ledger::PoolUsage host_usage() const override { return manager_.host_usage(); }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const override {
    return manager_.engines();
  }
  [[nodiscard]] std::vector<core::NotedDecision> decisions() const override {
    return manager_.decisions();
  }
  /// None while a manager is linked: where a host is away or in trouble, others serve, and whether
  /// any does, its devices tell.
  [[nodiscard]] std::vector<std::string> troubles() const override {
    if (manager_.is_linked()) {
      return {};
    }
    std::vector<std::string> all = manager_.troubles();
    for (std::string& trouble : hosts_.troubles()) {
      all.push_back(std::move(trouble));
    }
    return all;
  }

 private:
  void connect() {
    const config::ClusterMember& to = config_.cluster->managers.at(manager_at_);
    manager_.connect({.host = to.host, .port = to.port}, to.name);
  }

  /// One of several leads; the others say so, or do not answer.
  void try_next_manager() {
    const std::size_t count = config_.cluster->managers.size();
    if (count < 2 || std::exchange(trying_, true)) {
      return;  // This one is tried again meanwhile.
    }
    next_try_.expires_after(kBetweenManagers);
    next_try_.async_wait([this, count](const boost::system::error_code& stopped) {
      if (!stopped) {
        trying_ = false;
        if (!led_) {
          manager_at_ = (manager_at_ + 1) % count;
          connect();
        }
      }
    });
  }

  /// Tells the other gateways from time to time what keys have used here; what no manager passes
  /// on waits for the next one.
  void share_quotas() {
    next_quotas_.expires_after(kBetweenQuotas);
    next_quotas_.async_wait(
        [this, here = std::weak_ptr<const int>(here_)](const boost::system::error_code& stopped) {
          if (stopped || here.expired()) {
            return;
          }
          if (manager_.shares_quotas()) {
            std::vector<core::QuotaUse> used = gateway_->quotas().take_used();
            if (!used.empty()) {
              manager_.tell_quotas_used(std::move(used));
            }
          }
          share_quotas();
        });
  }

  /// Hosts that have joined are those that the manager has.
  void follow_hosts() {
    if (!hosts_join(*config_.cluster)) {
      return;
    }
    std::vector<remote::HostAddress> now;
    for (const core::HostEntry& host : manager_.hosts()) {
      const auto address = config::parse_listen(host.address);
      if (address) {
        now.push_back({.id = host.id,
                       .name = host.name,
                       .address = {.host = address->host, .port = address->port}});
      }
    }
    if (now != joined_) {
      joined_ = std::move(now);
      hosts_.set_hosts(joined_);
    }
  }

  void configure(const std::string& text) {
    Result<config::Config> both = with_cluster(config_, text);
    if (!both) {
      log::error("the cluster's configuration cannot be used", {{"why", both.error().message}});
      return;
    }
    config_ = std::move(*both);
    gateway_->reload(config_);
  }

  void serve(const remote::Served& served) {
    served_ = served;
    led_ = true;
    gateway_->reload(config_);
    fetch_wanted();
  }

  /// A folder that one thread waits for and the loop gives.
  struct Fetched {
    std::mutex mutex{};
    std::condition_variable changed{};
    std::optional<Result<std::filesystem::path>> folder{};  ///< Guarded by the mutex.
  };

  /// In a thread that may wait: has a host send the model's files, once, and reads them.
  Result<std::shared_ptr<const gateway::ModelText>> open_text(const config::ModelConfig& model) {
    const auto fetched = std::make_shared<Fetched>();
    asio::post(loop_, [this, name = model.id, fetched] {
      fetch_text(name, [fetched](Result<std::filesystem::path> folder) {
        const std::lock_guard lock(fetched->mutex);
        fetched->folder = std::move(folder);
        fetched->changed.notify_all();
      });
    });
    const Result<std::filesystem::path> folder = await(*fetched, model.id);
    if (!folder) {
      return folder.error();
    }
    if (const Result<void> tried = sandbox_->try_files(folder->string()); !tried) {
      return tried.error();
    }
    return gateway::open_model_text(*folder, model.context);
  }

  Result<std::filesystem::path> await(Fetched& fetched, const std::string& model) const {
    const Instant deadline = steady_now() + kFetchPatience;
    std::unique_lock lock(fetched.mutex);
    while (!fetched.folder && !ending_ && steady_now() < deadline) {
      fetched.changed.wait_for(lock, kFetchLook);
    }
    return fetched.folder.value_or(
        Error{.code = Code::kUnavailable,
              .message = "no host has sent the files of the model \"" + model + "\" in time"});
  }

  using Fetch = std::function<void(Result<std::filesystem::path>)>;

  void fetch_wanted() {
    for (auto& [model, done] : std::exchange(wanted_, {})) {
      fetch_text(model, std::move(done));
    }
  }

  /// Of a model that no host has told of yet, or while none is linked, it is fetched when one is.
  void fetch_text(const std::string& model, Fetch done) {
    const auto facts = std::ranges::find_if(served_.models, [&](const auto& entry) {
      return entry.second.name == model && !entry.second.digest.empty();
    });
    if (facts == served_.models.end()) {
      wanted_.emplace_back(model, std::move(done));
      return;
    }
    const std::string& digest = facts->second.digest;
    const std::filesystem::path folder = texts_.path() / digest;
    std::error_code none;
    if (std::filesystem::is_directory(folder, none)) {
      done(folder);
      return;
    }
    hosts_.fetch_text({.model = model, .digest = digest},
                      folder,
                      [this, model, folder, done = std::move(done)](const Result<void>& fetched) {
                        if (!fetched && fetched.error().code == Code::kUnavailable) {
                          wanted_.emplace_back(model, done);
                        } else {
                          fetched ? done(folder) : done(fetched.error());
                        }
                      });
  }

  asio::io_context& loop_;
  config::Config config_;  ///< With the models that the cluster has.
  NodeSelf self_;
  manager::LoopLag lag_;
  TextFolder texts_;
  std::atomic<bool> ending_ = false;
  std::size_t manager_at_ = 0;  ///< Of the managers that there are, the one that is tried.
  asio::steady_timer next_try_;
  asio::steady_timer next_quotas_;
  std::shared_ptr<const int> here_ = std::make_shared<const int>(0);  ///< While this lives.
  bool led_ = false;     ///< The manager that is linked leads.
  bool trying_ = false;  ///< The next manager is tried soon.
  remote::Served served_{};
  std::vector<remote::HostAddress> joined_{};            ///< As the manager last said.
  std::vector<std::pair<std::string, Fetch>> wanted_{};  ///< That cannot be had yet.
  remote::RemoteManager manager_;
  remote::RemoteHosts hosts_;
  remote::EngineStreams streams_;
  serving::Front front_;
  std::shared_ptr<sandbox::Sandbox> sandbox_ = std::make_shared<sandbox::Sandbox>();
  std::unique_ptr<gateway::Gateway> gateway_{};
};

Result<std::unique_ptr<GatewayNode>> GatewayNode::create(asio::io_context& loop,
                                                         const config::Config& config,
                                                         const NodeSelf& self,
                                                         Metrics& metrics) {
  auto impl = std::make_unique<Impl>(loop, config, self, metrics);
  if (const Result<void> begun = impl->begin(metrics); !begun) {
    return begun.error();
  }
  return std::unique_ptr<GatewayNode>(new GatewayNode(std::move(impl)));
}

GatewayNode::GatewayNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GatewayNode::~GatewayNode() = default;

const std::vector<config::ListenAddress>& GatewayNode::addresses() const {
  return impl_->gateway().addresses();
}
void GatewayNode::reload(const config::Config& config) {
  impl_->reload(config);
}
void GatewayNode::drain(Duration patience, std::function<void()> done) {
  impl_->gateway().drain(patience, std::move(done));
}

}  // namespace heddle::node
