#pragma once

#include <functional>
#include <string>

#include "api/requests.h"
#include "base/result.h"

namespace heddle::gateway {

/// Whoever adds LoRA adapters to what a gateway serves, and takes them away, while it runs. What is
/// empty nobody does. `done` is called once, on the loop: when requests may name the adapter, or
/// may not any more. Its error has the words for the client.
struct AdapterCalls {
  /// kNotFound where there is no such base, or there are no such files; kInvalidArgument where the
  /// adapter cannot be loaded, or one of that name is there already.
  std::function<void(api::LoadAdapterRequest, std::function<void(Result<void>)> done)> load{};
  /// kNotFound where no adapter has that name; kInvalidArgument for one of the configuration's.
  std::function<void(std::string name, std::function<void(Result<void>)> done)> unload{};
};

}  // namespace heddle::gateway
