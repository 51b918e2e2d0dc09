#include "host/configured_host.h"

#include <algorithm>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "fetch/model_cache.h"
#include "fetch/source_name.h"
#include "fetch/url.h"
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
    if (!model.known) {
      log::info("model is in no cache; its source is asked what it is",
                {{"model", model.config.id}, {"from", fetch::shown(model.source)}});
    } else if (!model.ranks) {
      log::error("model cannot be served",
                 {{"model", model.config.id}, {"error", model.ranks.error().message}});
    } else if (!model.ranks->empty()) {
      for (const auto& [name, why] : model.adapter_failures) {
        log::error("adapter cannot be served",
                   {{"model", model.config.id}, {"adapter", name}, {"error", why.message}});
      }
      for (const std::string& name : model.ranks->front().unused) {
        log::warning("tensor that nothing reads", {{"model", model.config.id}, {"tensor", name}});
      }
    }
  }
}

/// A name that was meant as a folder reads as one of the hub.
std::string why_not_learnt(const std::string& source, const Error& error) {
  const bool named = source.find("://") == std::string::npos;
  return "learn what it is from " + fetch::shown(source) +
         (named ? ", which is no folder here and so a name of the hub: " : ": ") + error.message;
}

}  // namespace

Result<std::unique_ptr<ConfiguredHost>> ConfiguredHost::create(
    const asio::any_io_executor& executor,
    config::Config config,
    HostIdentity identity,
    HostHandlers handlers) {
  if (const auto budget = cache_budget(store::process_environment()); !budget) {
    return budget.error();
  }
  const std::int64_t batch_tokens = choose_batch_tokens(config);
  Result<HostSetup> setup = host_setup(config, batch_tokens, identity.id);
  if (!setup) {
    return setup.error();
  }
  setup->agent.incarnation = identity.incarnation;
  setup->agent.fetch = {.pull = fetch_options(config),
                        .bytes_per_second = config.host.nic,
                        .link = handlers.link,
                        .find_peer = handlers.find_peer};
  auto find_peer = handlers.find_peer;
  const auto changed = std::make_shared<std::function<void(const std::string&)>>();
  handlers.on_changed = [changed](const std::string& source) {
    if (*changed) {
      (*changed)(source);
    }
  };
  const agent::HostGeometry geometry{
      .page_bytes = setup->agent.page_bytes,
      .max_batch_tokens = batch_tokens,
      .keeps_f8 = std::ranges::any_of(config.devices, [](const config::DeviceConfig& device) {
        return device.kind == config::DeviceKind::kCuda;
      })};
  Result<std::unique_ptr<Host>> host =
      Host::create(executor, std::move(*setup), std::move(handlers));
  if (!host) {
    return host.error();
  }
  std::unique_ptr<ConfiguredHost> self(new ConfiguredHost(
      executor, std::move(config), std::move(identity), geometry, std::move(*host)));
  self->find_peer_ = std::move(find_peer);
  *changed = [raw = self.get()](const std::string& source) {
    if (raw->outlines_) {
      raw->outlines_->ask_again(source);
    }
  };
  return self;
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
  facts.step_tokens = geometry_.max_batch_tokens;
  return facts;
}

void ConfiguredHost::on_offers(std::function<void(std::vector<Offer>)> handler) {
  on_offers_ = std::move(handler);
}

std::vector<Offer> ConfiguredHost::open(const config::Config& config) {
  std::vector<Offer> offered = keep(config, open_models(config, geometry_));
  tell_files();
  return offered;
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
                              (*self)->tell_files();
                            }
                          });
             });
}

void ConfiguredHost::find_adapter(const std::string& model,
                                  std::vector<std::string> folders,
                                  std::string named,
                                  std::function<void(Result<std::string>)> done) {
  const auto found =
      std::ranges::find_if(opened_, [&](const OpenedModel& one) { return one.config.id == model; });
  const bool known = found != opened_.end() && found->known;
  if (!known || !found->ranks || found->ranks->empty()) {
    const Error why = known && !found->ranks
                          ? found->ranks.error()
                          : Error{Code::kUnavailable, "it is not known yet what " + model + " is"};
    asio::post(executor_, [done = std::move(done), why] { done(why); });
    return;
  }
  asio::post(opener_,
             [alive = std::weak_ptr(alive_),
              executor = executor_,
              base = found->ranks->front(),
              folders = std::move(folders),
              named = std::move(named),
              done = std::move(done)] {
               asio::post(executor,
                          [alive, done, found = host::find_adapter(folders, named, base)] {
                            if (alive.lock()) {
                              done(found);
                            }
                          });
             });
}

std::vector<Offer> ConfiguredHost::keep(const config::Config& config,
                                        std::vector<OpenedModel> opened) {
  config_ = config;
  opened_ = std::move(opened);
  ++opened_times_;
  log_models(opened_);
  hold_models();
  ask_sources();
  return offers(config_, identity_.id, opened_);
}

/// What is served is not removed to make room for others.
void ConfiguredHost::hold_models() {
  const fetch::PullOptions options = fetch_options(config_);
  std::map<std::string, std::shared_ptr<void>> held;
  for (const OpenedModel& model : opened_) {
    const std::string& source = model.config.path;
    const auto name = fetch::remote_source(source, options.environment);
    if (model.config.engine || !name) {
      continue;
    }
    const auto before = held_.find(source);
    if (before != held_.end()) {
      held[source] = before->second;
    } else if (auto hold = fetch::hold_in_cache(*name, options.places)) {
      held[source] = std::move(*hold);
    }
  }
  held_ = std::move(held);
}

void ConfiguredHost::ask_sources() {
  std::set<std::string> sources;
  for (const OpenedModel& model : opened_) {
    if (!model.source.empty()) {
      sources.insert(model.source);
    }
  }
  if (!outlines_ && !sources.empty()) {
    outlines_.emplace(executor_,
                      fetch_options(config_),
                      [this](const std::string& source, const Result<fetch::Outline>& outline) {
                        learnt(source, outline);
                      });
  }
  if (outlines_) {
    tell_holders();
    outlines_->want(sources);
  }
}

void ConfiguredHost::set_holders(const std::vector<Holder>& holders) {
  holders_ = holders;
  tell_holders();
}

/// Which hosts can be asked where a source is away.
void ConfiguredHost::tell_holders() {
  if (!outlines_ || !find_peer_) {
    return;
  }
  std::map<std::string, std::vector<core::GroupHost>> hosts;
  for (const OpenedModel& model : opened_) {
    const auto holder = std::ranges::find(holders_, model.config.id, &Holder::model);
    if (!model.source.empty() && holder != holders_.end()) {
      hosts[model.source] = holder->hosts;
    }
  }
  outlines_->set_peers(hosts, find_peer_);
}

void ConfiguredHost::tell_files() {
  ModelFiles::Known known;
  for (const OpenedModel& model : opened_) {
    known.folders[model.config.id] = directory_of(model.config.id);
    if (!model.known) {
      known.awaited[model.config.id] = fetch::shown(model.source);
    } else if (!model.ranks && !model.source.empty()) {
      known.failed.emplace(model.config.id, model.ranks.error());
    }
  }
  files_->tell(std::move(known));
}

/// A source has said what its model is, or it could not be asked.
void ConfiguredHost::learnt(const std::string& source, const Result<fetch::Outline>& outline) {
  const bool lacks = std::ranges::any_of(opened_, [&](const OpenedModel& model) {
    return model.source == source && (!model.known || !model.ranks);
  });
  if (outline && (outline->changed || lacks)) {
    open_again(source);
    return;
  }
  if (outline) {
    return;
  }
  const std::string why = why_not_learnt(source, outline.error());
  const bool said = std::ranges::any_of(opened_, [&](const OpenedModel& model) {
    return model.source == source && !model.ranks && model.ranks.error().message == why;
  });
  if (!said) {
    log::warning("a source does not say what its model is", {{"why", why}});
  }
  if (!lacks) {
    return;  // What was known of it before still holds, as far as is known.
  }
  std::vector<OpenedModel> failed;
  for (const OpenedModel& model : opened_) {
    if (model.source == source && (!model.known || !model.ranks)) {
      failed.push_back(
          {.config = model.config, .ranks = Error{Code::kUnavailable, why}, .source = source});
    }
  }
  take(std::move(failed));
}

void ConfiguredHost::open_again(const std::string& source) {
  std::vector<config::ModelConfig> models;
  for (const OpenedModel& model : opened_) {
    if (model.source == source) {
      models.push_back(model.config);
    }
  }
  asio::post(opener_,
             [alive = std::weak_ptr(alive_),
              executor = executor_,
              config = config_,
              geometry = geometry_,
              models = std::move(models),
              source,
              times = opened_times_] {
               std::vector<OpenedModel> opened;
               for (const config::ModelConfig& model : models) {
                 opened.push_back(open_model(config, model, geometry));
               }
               asio::post(executor, [alive, source, times, opened = std::move(opened)]() mutable {
                 const std::shared_ptr<ConfiguredHost*> self = alive.lock();
                 if (self == nullptr) {
                   return;
                 }
                 if ((*self)->opened_times_ != times) {
                   (*self)->open_again(source);  // By the configuration that there is now.
                 } else {
                   log_models(opened);
                   (*self)->take(std::move(opened));
                 }
               });
             });
}

/// Puts these in the places of those of their names, and offers them.
void ConfiguredHost::take(std::vector<OpenedModel> opened) {
  for (OpenedModel& model : opened) {
    if (model.known && model.ranks) {
      log::info("a source has said what its model is",
                {{"model", model.config.id}, {"from", fetch::shown(model.source)}});
    }
    const auto place = std::ranges::find_if(
        opened_, [&](const OpenedModel& one) { return one.config.id == model.config.id; });
    if (place != opened_.end()) {
      *place = std::move(model);
    }
  }
  if (on_offers_) {
    on_offers_(offers(config_, identity_.id, opened_));
  }
  tell_files();
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

void ConfiguredHost::hear_edges(const agent::EdgeNews& news) {
  host_->hear_edges(news);
}

void ConfiguredHost::give_kv(rpc::KvAsk ask, agent::KvAnswer answer) {
  host_->give_kv(std::move(ask), std::move(answer));
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

std::vector<core::FetchStatus> ConfiguredHost::fetches() const {
  return host_->fetches();
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
