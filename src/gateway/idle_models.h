#pragma once

#include <memory>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "gateway/context.h"

namespace heddle::gateway {

/// The models whose `ttl` has passed since they were last used: they serve, nobody uses them or
/// waits for them, and they are not pinned. Pure.
[[nodiscard]] std::vector<ModelId> expired_models(const std::vector<core::ModelStatus>& statuses,
                                                  const Catalog& catalog,
                                                  Instant now);

/// Unloads models when their ttl has passed, until the gateway ends.
boost::asio::awaitable<void> unload_expired(std::shared_ptr<Context> context);

}  // namespace heddle::gateway
