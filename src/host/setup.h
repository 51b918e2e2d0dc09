#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "base/result.h"
#include "config/config.h"
#include "external/engine_host.h"
#include "host/host.h"
#include "host/offer.h"
#include "host/opened_model.h"
#include "policy/admission.h"

/// The configuration of a host in the words of those who act on it. Pure.
namespace heddle::host {

/// What the model needs there.
[[nodiscard]] const policy::Footprint& footprint_on(const config::DeviceConfig& device,
                                                    const agent::HostModel& model);
/// Offers an external engine on its device, or says why not.
void offer_engine(const config::Config& config,
                  HostId host,
                  const config::EngineConfig& engine,
                  Offer& offer);

/// What the host is, but for its name.
[[nodiscard]] HostFacts host_facts(const config::Config& config, HostId host);

/// kInvalidArgument where devices have different page sizes, or one or the host has less than a
/// page.
Result<agent::AgentSetup> agent_setup(const config::Config& config,
                                      std::int64_t max_batch_tokens,
                                      HostId host = HostId(0));
/// The host with its workers and engines. Errors as agent_setup().
Result<HostSetup> host_setup(const config::Config& config,
                             std::int64_t max_batch_tokens,
                             HostId host = HostId(0));
/// How external engines are handled.
[[nodiscard]] external::EngineHostSetup engine_host_setup(const config::Config& config,
                                                          HostId host = {});
/// The models that it may run: those of its offers that were taken up.
[[nodiscard]] HostModels host_models(const config::Config& config,
                                     HostId host,
                                     const std::vector<OpenedModel>& opened,
                                     const std::vector<Assignment>& assigned);

/// The GPUs of which one can have KV of its models on the other.
struct GuestPairs {
  core::GuestPeers peers{};
  /// Of the other pairs, why not: "gpu0 and gpu1: gpu1 has no stream memory operations".
  std::vector<std::string> refusals{};
};
[[nodiscard]] GuestPairs guest_pairs(const config::Config& config, HostId host = HostId(0));

}  // namespace heddle::host
