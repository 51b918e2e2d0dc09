#include "host/configured_host.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "host/setup.h"

namespace heddle::host {

namespace asio = boost::asio;

namespace {

bool same_device(const config::DeviceConfig& a, const config::DeviceConfig& b) {
  return a.name == b.name && a.kind == b.kind && a.cores == b.cores && a.gpu == b.gpu &&
         a.memory == b.memory && a.page == b.page && a.load_bandwidth == b.load_bandwidth &&
         a.copy == b.copy && a.pace.step == b.pace.step && a.pace.token == b.pace.token &&
         a.pace.context == b.pace.context && a.step_budget == b.step_budget &&
         a.prefix_cache == b.prefix_cache;
}

/// What of the files is worth a word where they are.
void log_models(const std::vector<OpenedModel>& models) {
  for (const OpenedModel& model : models) {
    if (!model.ranks) {
      log::error("model cannot be served",
                 {{"model", model.config.id}, {"error", model.ranks.error().message}});
    } else if (!model.ranks->empty()) {
      for (const std::string& name : model.ranks->front().unused) {
        log::warning("tensor that nothing reads", {{"model", model.config.id}, {"tensor", name}});
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<ConfiguredHost>> ConfiguredHost::create(
    const asio::any_io_executor& executor,
    config::Config config,
    HostIdentity identity,
    HostHandlers handlers) {
  const std::int64_t batch_tokens = choose_batch_tokens(config);
  Result<HostSetup> setup = host_setup(config, batch_tokens, identity.id);
  if (!setup) {
    return setup.error();
  }
  setup->agent.incarnation = identity.incarnation;
  const agent::HostGeometry geometry{.page_bytes = setup->agent.page_bytes,
                                     .max_batch_tokens = batch_tokens};
  Result<std::unique_ptr<Host>> host =
      Host::create(executor, std::move(*setup), std::move(handlers));
  if (!host) {
    return host.error();
  }
  return std::unique_ptr<ConfiguredHost>(new ConfiguredHost(
      executor, std::move(config), std::move(identity), geometry, std::move(*host)));
}

ConfiguredHost::ConfiguredHost(asio::any_io_executor executor,
                               config::Config config,
                               HostIdentity identity,
                               const agent::HostGeometry& geometry,
                               std::unique_ptr<Host> host)
    : executor_(std::move(executor)),
      config_(std::move(config)),
      identity_(std::move(identity)),
      geometry_(geometry),
      host_(std::move(host)) {}

HostFacts ConfiguredHost::facts() const {
  HostFacts facts = host_facts(config_, identity_.id);
  facts.name = identity_.name;
  return facts;
}

std::vector<Offer> ConfiguredHost::open(const config::Config& config) {
  return keep(config, open_models(config, geometry_));
}

void ConfiguredHost::open_later(config::Config config,
                                std::function<void(std::vector<Offer>)> done) {
  asio::post(opener_,
             [alive = std::weak_ptr(alive_),
              executor = executor_,
              config = std::move(config),
              geometry = geometry_,
              done = std::move(done)] {
               asio::post(executor,
                          [alive, config, done, opened = open_models(config, geometry)]() mutable {
                            if (const std::shared_ptr<ConfiguredHost*> self = alive.lock()) {
                              done((*self)->keep(config, std::move(opened)));
                            }
                          });
             });
}

std::vector<Offer> ConfiguredHost::keep(const config::Config& config,
                                        std::vector<OpenedModel> opened) {
  config_ = config;
  opened_ = std::move(opened);
  log_models(opened_);
  return offers(config_, identity_.id, opened_);
}

void ConfiguredHost::start() {
  if (config_.planner.weave) {
    for (const std::string& refusal : guest_pairs(config_).refusals) {
      log::warning("GPUs do not lend memory to each other's KV", {{"why", refusal}});
    }
  }
  host_->start();
}

void ConfiguredHost::set_models(const std::vector<Assignment>& models) {
  host_->set_models(host_models(config_, identity_.id, opened_, models));
}

void ConfiguredHost::carry_out(const HostOrder& order) {
  host_->carry_out(order);
}

void ConfiguredHost::forget_orders() {
  host_->forget_orders();
}

core::ModelsByDevice ConfiguredHost::models() const {
  return host_->models();
}

void ConfiguredHost::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  host_->send(device, epoch, std::move(message));
}

void ConfiguredHost::describe(core::DeviceStatus& device) const {
  host_->describe(device);
}

ledger::PoolUsage ConfiguredHost::host_usage() const {
  return host_->host_usage();
}

std::vector<core::EngineStatus> ConfiguredHost::engines() const {
  return host_->engines();
}

std::vector<std::string> ConfiguredHost::troubles() const {
  return host_->troubles();
}

std::optional<HttpAddress> ConfiguredHost::engine_address(ModelId model) const {
  return host_->engine_address(model);
}

rpc::WorkerStats ConfiguredHost::worker_stats(DeviceId device) const {
  return host_->worker_stats(device);
}

int ConfiguredHost::worker_pid(DeviceId device) const {
  return host_->worker_pid(device);
}

std::optional<std::filesystem::path> ConfiguredHost::directory_of(const std::string& model) const {
  const auto found =
      std::ranges::find_if(opened_, [&](const OpenedModel& one) { return one.config.id == model; });
  if (found == opened_.end() || !found->ranks || found->ranks->empty()) {
    return std::nullopt;
  }
  return found->ranks->front().directory;
}

Result<void> check_reload(const config::Config& before, const config::Config& now) {
  if (!std::equal(before.devices.begin(),
                  before.devices.end(),
                  now.devices.begin(),
                  now.devices.end(),
                  same_device)) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `devices` has changed, which takes a restart"};
  }
  if (before.host != now.host) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `host` has changed, which takes a restart"};
  }
  return {};
}

}  // namespace heddle::host
