#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "core/manager/manager_core.h"
#include "core/serving.h"
#include "host/offer.h"
#include "manager/model_registry.h"

/// The configuration in the words of the manager's core. Pure.
namespace heddle::manager {

/// The models that some host can serve, and all devices that hosts have told of.
/// `clock_offset`: UTC less steady time.
[[nodiscard]] core::Configure core_setup(const config::Config& config,
                                         const std::vector<ConfiguredModel>& models,
                                         const std::vector<core::ManagerDevice>& devices,
                                         Duration clock_offset);
[[nodiscard]] core::PlannerOptions planner_options(const config::PlannerConfig& planner,
                                                   Duration clock_offset);

/// What the host is to serve.
[[nodiscard]] std::vector<host::Assignment> assignments(const std::vector<ConfiguredModel>& models,
                                                        HostId host);
/// The configured models, for who owns their requests.
[[nodiscard]] std::map<ModelId, core::ServedModel> served_models(
    const std::vector<ConfiguredModel>& models);

/// The models that are loaded when the server starts.
[[nodiscard]] std::vector<ModelId> to_preload(const config::Config& config,
                                              const std::vector<ConfiguredModel>& models);

/// kFailedPrecondition, naming it, for something of `now` that a running manager cannot take over.
Result<void> check_reload(const config::Config& before, const config::Config& now);

}  // namespace heddle::manager
