#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "agent/agent_setup.h"
#include "agent/edges.h"
#include "agent/host_model.h"
#include "agent/image_fetcher.h"
#include "agent/kv_exchange.h"
#include "agent/worker_watch.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/agent_core.h"
#include "core/messages.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// What is wanted of an agent.
using AgentOrder = std::variant<core::LoadOn,
                                core::EvictFrom,
                                core::FormGroup,
                                core::Weave,
                                core::Unweave,
                                core::Borrow,
                                core::Repay>;

/// One host's part of the system, live: the arena, one worker process per device and the link to
/// it, the reader of images. AgentCore decides; this does it and reports back. Loop thread only;
/// the loop outlives it, and handlers are never called from within a call to it.
class Agent {
 public:
  struct Handlers {
    /// Outlives the agent. Null: there are no other hosts.
    EdgePort* edges = nullptr;
    /// As KvExchange has it.
    std::function<void(const rpc::KvAsk&, KvAnswer)> ask_kv{};
    /// For the manager's core.
    std::function<void(core::ManagerEvent)> on_event{};
    /// Tokens of one step of a worker's life, for the owner of the records.
    std::function<void(DeviceId, WorkerEpoch, std::vector<core::TokenEvent>)> on_tokens{};
    /// A worker has been told to load a model; for the time that switches take.
    std::function<void(DeviceId, ModelId)> on_told{};
    /// Pages of a device are an external engine's, or (an error) are not.
    std::function<void(ModelId, Result<void>)> on_loan{};
    /// What was to be given back of them is with the device again.
    std::function<void(ModelId)> on_repaid{};
    /// A source has other files of a model than its outline says. May be empty.
    std::function<void(const std::string& source)> on_changed{};
    /// The core has taken this step; for the event log. May be empty.
    std::function<void(Instant, const core::AgentEvent&, const std::vector<core::AgentCommand>&)>
        on_step{};
  };

  /// Makes the arena, which takes seconds where there is much memory. Errors as Arena::create.
  static Result<std::unique_ptr<Agent>> create(const boost::asio::any_io_executor& executor,
                                               AgentSetup setup,
                                               Handlers handlers);
  /// Ends the workers; none is left when it returns.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// The models there are from now on. An id keeps its meaning for ever.
  void set_models(const std::vector<HostModel>& models);
  /// Starts the workers; after set_models().
  void start();

  /// What becomes of it on_event tells: of FormGroup GroupFormed, or WorkerDown of all of them; of
  /// Weave and Unweave, by which a device lends pages to KV of a model elsewhere and takes some
  /// back, GuestState. on_loan answers Borrow, on_repaid Repay.
  void carry_out(const AgentOrder& order);
  /// What becomes of edges that it wanted connected.
  void hear_edges(const EdgeNews& news);
  /// Another host asks for KV of a device of this one; it is answered in any case.
  void give_kv(rpc::KvAsk ask, KvAnswer answer);
  /// Whoever ordered is gone: drops what was ordered and no worker was told of.
  void forget_orders();
  /// As AgentCore has them.
  [[nodiscard]] core::ModelsByDevice models() const;
  /// Passes a message on to a worker, unless that life of it has ended.
  void send(DeviceId device, WorkerEpoch epoch, core::WorkerMessage message);

  [[nodiscard]] ledger::PoolUsage host_usage() const;
  // Of devices without a worker, these say what they would of one that has not started.
  /// How often the device's worker was started again.
  [[nodiscard]] std::uint64_t restarts(DeviceId device) const;
  /// What the device's worker last said of itself.
  [[nodiscard]] rpc::WorkerStats stats(DeviceId device) const;
  /// How the device's worker is.
  [[nodiscard]] WorkerHealth health(DeviceId device) const;
  /// What is fetched of models, and has been, by name.
  [[nodiscard]] std::vector<core::FetchStatus> fetches() const;
  /// What is wrong now with workers and the host, for people.
  [[nodiscard]] std::vector<std::string> troubles() const;
  /// The worker's process; -1 when there is none.
  [[nodiscard]] int worker_pid(DeviceId device) const;

 private:
  class Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::agent
