#pragma once

#include <string>

#include "gateway/context.h"
#include "gateway/model_names.h"

namespace heddle::gateway {

/// How the model with this name or alias stands; a peer's is away, as nothing is known of it.
[[nodiscard]] Standing standing_of(const Context& context, const std::string& model);

}  // namespace heddle::gateway
