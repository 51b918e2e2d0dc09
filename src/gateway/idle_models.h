#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gateway/context.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// For how long a model may be idle: as its last request said, else as configured. Nothing for one
/// that stays.
[[nodiscard]] std::optional<Duration> time_to_live(const CatalogModel& model);

/// The models whose time to live has passed since they were last used: they serve, nobody uses them
/// or waits for them, and they are not pinned. Pure.
[[nodiscard]] std::vector<ModelId> expired_models(const std::vector<core::ModelStatus>& statuses,
                                                  const Catalog& catalog,
                                                  Instant now);

/// Unloads models when their time to live has passed, until the gateway ends.
Task<void> unload_expired(std::shared_ptr<Context> context);

}  // namespace heddle::gateway
