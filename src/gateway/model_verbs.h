#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "gateway/context.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What an operator may want of a model.
enum class Verb : std::uint8_t { kLoad, kUnload };

/// Waits for the system behind to load or unload a model.
Task<Result<void>> carry_out(Context& context, Verb verb, ModelId model);

}  // namespace heddle::gateway
