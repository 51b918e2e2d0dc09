#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "agent/agent.h"
#include "agent/host_model.h"
#include "agent/shared_pages.h"
#include "base/ids.h"
#include "core/agent_core.h"
#include "rpc/descriptor.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// What AgentCore orders about pairs of which one lends pages to KV of a model on the other
/// (docs/contracts/guests.md), in messages to the two workers. Loop thread.
class GuestPairs {
 public:
  /// The agent, as far as this needs it.
  struct Site {
    std::size_t page_bytes = 0;
    std::function<const HostModel&(ModelId)> model{};
    std::function<const DeviceSetup&(DeviceId)> device{};
    /// Does nothing where that life of the worker has ended.
    std::function<void(DeviceId, WorkerEpoch, const rpc::ToWorker&, std::vector<rpc::Descriptor>)>
        send{};
    std::function<void(core::AgentEvent)> hear{};
  };
  explicit GuestPairs(Site site) : site_(std::move(site)) {}

  /// Both have the area before the hot one is lent the pages. Where it cannot be had, the hot
  /// worker runs attention over its guests by itself.
  void connect(const core::ConnectGuests& command) const;
  void share(const core::ShareMemory& command);
  void pass(const core::PassMemory& command) const;
  void lease(const core::LeaseGuests& command);
  void disconnect(const core::DisconnectGuests& command) const;

  /// A worker has said this, before the core hears it: keeps what it has shared, and logs what it
  /// could not do. False where it breaks the rules.
  [[nodiscard]] bool heard(DeviceId device,
                           const core::WorkerReport& report,
                           std::vector<rpc::Descriptor> descriptors);

 private:
  Site site_;
  SharedPages shared_{};
};

}  // namespace heddle::agent
