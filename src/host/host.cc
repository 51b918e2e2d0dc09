#include "host/host.h"

#include <utility>
#include <variant>

#include "host/device_counts.h"
#include "host/lent_pages.h"

namespace heddle::host {

Result<std::unique_ptr<Host>> Host::create(const boost::asio::any_io_executor& executor,
                                           HostSetup setup,
                                           HostHandlers handlers) {
  std::unique_ptr<Host> host(new Host(std::move(handlers), std::move(setup.gpus)));
  if (const Result<void> begun = host->begin(executor, std::move(setup)); !begun) {
    return begun.error();
  }
  return host;
}

Host::Host(HostHandlers handlers, std::map<DeviceId, int> gpus)
    : handlers_(std::move(handlers)), gpus_(std::move(gpus)) {}

Result<void> Host::begin(const boost::asio::any_io_executor& executor, HostSetup setup) {
  const std::string logs = setup.agent.event_log;
  if (const Result<void> opened = agent_log_.open(logs, "agent"); !opened) {
    return opened.error();
  }
  if (const Result<void> opened = engines_log_.open(logs, "engines"); !opened) {
    return opened.error();
  }
  engines_ =
      std::make_unique<external::EngineHost>(executor, std::move(setup.engines), engine_handlers());
  auto agent = agent::Agent::create(executor, std::move(setup.agent), agent_handlers());
  if (!agent) {
    return agent.error();
  }
  agent_ = std::move(*agent);
  return {};
}

external::EngineHost::Handlers Host::engine_handlers() {
  return {.on_event = handlers_.on_event,
          .on_borrow = [this](const core::Borrow& borrow) { agent_->carry_out(borrow); },
          .on_repay = [this](const core::Repay& repay) { agent_->carry_out(repay); },
          .silent_since = handlers_.silent_since,
          .on_step = [this](Instant at,
                            const auto& event,
                            const auto& commands) { engines_log_.write(at, event, commands); }};
}

agent::Agent::Handlers Host::agent_handlers() {
  return {.edges = handlers_.edges,
          .ask_kv = handlers_.ask_kv,
          .on_event = handlers_.on_event,
          .on_tokens = handlers_.on_tokens,
          .on_told = handlers_.on_told,
          .on_loan =
              [this](ModelId model, const Result<void>& loan) {
                loan ? engines_->grant(model) : engines_->refuse(model, loan.error());
              },
          .on_repaid = [this](ModelId model) { engines_->repaid(model); },
          .on_changed = handlers_.on_changed,
          .on_step = [this](Instant at,
                            const auto& event,
                            const auto& commands) { agent_log_.write(at, event, commands); }};
}

void Host::set_models(HostModels models) {
  agent_->set_models(models.own);
  engines_->set_engines(std::move(models.engines), std::move(models.configured));
}

void Host::start() {
  agent_->start();
}

void Host::carry_out(const HostOrder& order) {
  if (const auto* load = std::get_if<core::LoadOn>(&order)) {
    if (engines_->hosts(load->model)) {
      handlers_.on_told(load->device, load->model);
      engines_->carry_out(*load);
      return;
    }
  } else if (const auto* evict = std::get_if<core::EvictFrom>(&order)) {
    if (engines_->hosts(evict->model)) {
      engines_->carry_out(*evict);
      return;
    }
  }
  if (const auto* limit = std::get_if<core::LimitKv>(&order)) {
    engines_->carry_out(*limit);
    return;
  }
  const auto carry_out = [this](const auto& wanted) {
    if constexpr (std::is_constructible_v<agent::AgentOrder, decltype(wanted)>) {
      agent_->carry_out(wanted);
    }
  };
  std::visit(carry_out, order);
}

void Host::hear_edges(const agent::EdgeNews& news) {
  agent_->hear_edges(news);
}

void Host::give_kv(rpc::KvAsk ask, agent::KvAnswer answer) {
  agent_->give_kv(std::move(ask), std::move(answer));
}

void Host::forget_orders() {
  agent_->forget_orders();
}

core::ModelsByDevice Host::models() const {
  return agent_->models();
}

void Host::send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message) {
  agent_->send(device, epoch, std::move(message));
}

void Host::describe(core::DeviceStatus& device) const {
  add_counts(*agent_, device);
  add_lent(*engines_, device);
  device.others_bytes = gpus_.others_bytes(device.id, device.up);
}

ledger::PoolUsage Host::host_usage() const {
  return agent_->host_usage();
}

std::vector<core::EngineStatus> Host::engines() const {
  return engines_->engines();
}

std::vector<core::FetchStatus> Host::fetches() const {
  return agent_->fetches();
}

std::vector<std::string> Host::troubles() const {
  std::vector<std::string> all = agent_->troubles();
  for (std::string& trouble : engines_->troubles()) {
    all.push_back(std::move(trouble));
  }
  return all;
}

std::optional<HttpAddress> Host::engine_address(ModelId model) const {
  return engines_->address(model);
}

rpc::WorkerStats Host::worker_stats(DeviceId device) const {
  return agent_->stats(device);
}

int Host::worker_pid(DeviceId device) const {
  return agent_->worker_pid(device);
}

}  // namespace heddle::host
