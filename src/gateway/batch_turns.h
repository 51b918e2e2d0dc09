#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

/// When lines of batches may run: while nobody else needs the devices. Pure.
namespace heddle::gateway {

/// A model as it stands to lines of batches.
struct ModelUse {
  ModelId id{};
  bool here = false;               ///< It is on devices, all of it.
  std::vector<DeviceId> on{};      ///< Those that it is on, or comes to.
  std::vector<DeviceId> may_be{};  ///< Those that it may come to.
  std::int64_t clients = 0;        ///< Requests of clients that have not ended.
  bool late = false;               ///< One of them has waited long for its first token.
  Duration quiet{};                ///< Since the last of them ended.
  std::int64_t lines = 0;          ///< Of batches, that run.
};

/// Whether a line of `all[model]` may begin. Where the model is there: while no client asks a model
/// that shares a device with it, or one that is nowhere and may come there. Where it is to come: if
/// one of its devices has no request, no line of another model, and no model that a client has used
/// in the last `quiet`, and no client waits for a model that may come there.
[[nodiscard]] bool may_begin(const std::vector<ModelUse>& all, std::size_t model, Duration quiet);

/// The models, by their places in `all`, whose lines are to be called back: a client waits for a
/// model that is to come to one of their devices, or has waited long on one of them; or they are
/// nowhere yet, and a client asks a model that might be drained for them.
[[nodiscard]] std::vector<std::size_t> called_back(const std::vector<ModelUse>& all);

}  // namespace heddle::gateway
