#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "fetch/model_cache.h"

namespace heddle::fetch {

/// A place in the cache that Hugging Face's tools have:
///
///     models--org--name/blobs/<SHA-256, or git's id>
///     models--org--name/snapshots/<commit>/config.json -> ../../blobs/...
///     models--org--name/refs/main                          the commit
///
/// Files come as blobs/<id>.heddle.incomplete, whose pieces the tools do not know. Their locks are
/// held meanwhile, so that nobody fetches the same twice.
[[nodiscard]] Result<std::unique_ptr<ModelPlace>> open_hub_place(
    const store::HubName& name,
    const store::ModelPlaces& places,
    const std::function<void()>& on_wait,
    const std::stop_token& stop);

}  // namespace heddle::fetch
