#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agent/agent.h"
#include "base/result.h"
#include "config/config.h"
#include "core/manager/manager_core.h"
#include "external/engine_host.h"
#include "host/host.h"
#include "manager/model_registry.h"
#include "policy/admission.h"
#include "serving/front.h"

/// The configuration in the words of those who act on it. Pure.
namespace heddle::manager {

/// What the model needs there.
[[nodiscard]] const policy::Footprint& footprint_on(const config::DeviceConfig& device,
                                                    const agent::HostModel& model);

/// kInvalidArgument where devices have different page sizes, or one or the host has less than a
/// page.
Result<agent::AgentSetup> agent_setup(const config::Config& config, std::int64_t max_batch_tokens);

/// This host, as it is configured. Errors as agent_setup().
Result<host::HostSetup> host_setup(const config::Config& config, std::int64_t max_batch_tokens);
/// The models that it may run: those that can be opened, with their shards, and external engines.
[[nodiscard]] host::HostModels host_models(const config::Config& config,
                                           const std::vector<ConfiguredModel>& models);
/// The configured models, for who owns their requests.
[[nodiscard]] std::map<ModelId, serving::ServedModel> served_models(
    const std::vector<ConfiguredModel>& models);

/// The models that can be opened and all devices, for ManagerCore.
/// `clock_offset`: UTC less steady time.
[[nodiscard]] core::Configure core_setup(const config::Config& config,
                                         const std::vector<ConfiguredModel>& models,
                                         Duration clock_offset);
[[nodiscard]] core::PlannerOptions planner_options(const config::PlannerConfig& planner,
                                                   Duration clock_offset);

/// How external engines are handled.
[[nodiscard]] external::EngineHostSetup engine_host_setup(const config::Config& config);
/// These engines and the devices that only they use, for EnginesCore.
[[nodiscard]] core::ConfigureEngines engines_setup(const config::Config& config,
                                                   const std::vector<ConfiguredModel>& models);
/// The same engines, for those who run them.
[[nodiscard]] std::vector<external::ConfiguredEngine> hosted_engines(
    const config::Config& config, const std::vector<ConfiguredModel>& models);

/// The models that are loaded when the server starts.
[[nodiscard]] std::vector<ModelId> to_preload(const config::Config& config,
                                              const std::vector<ConfiguredModel>& models);

/// kFailedPrecondition, naming it, for something of `now` that a running system cannot take over.
Result<void> check_reload(const config::Config& before, const config::Config& now);

}  // namespace heddle::manager
