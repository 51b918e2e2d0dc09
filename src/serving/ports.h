#pragma once

#include <cstdint>
#include <map>
#include <variant>

#include "base/ids.h"
#include "base/result.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/serving.h"
#include "serving/place.h"

/// What a front has to do with: who decides about its requests, and who runs them.
namespace heddle::serving {

/// What becomes of requests, as the manager hears it. Of what workers say: RequestReturned and
/// RequestFailed.
using RequestNews = std::variant<core::RequestArrived,
                                 core::RequestFinished,
                                 core::RequestCancelled,
                                 core::PlaceLost,
                                 core::RequestUnanswered,
                                 core::WorkerSaid>;

/// The manager, as a front sees it. It answers with Dispatch, Hold and FailRequest, perhaps from
/// within a call.
class ManagerPort {
 public:
  virtual ~ManagerPort() = default;
  virtual void tell(const RequestNews& news) = 0;
  /// As ManagerCore has it.
  [[nodiscard]] virtual std::int64_t tokens_max(ModelId model) const = 0;
};

/// A front, as its manager sees it. Called on the loop, perhaps from within ManagerPort::tell().
class FrontPort {
 public:
  virtual ~FrontPort() = default;
  /// The models that are configured from now on.
  virtual void set_models(std::map<ModelId, core::ServedModel> models) = 0;
  virtual void carry_out(const core::Dispatch& command) = 0;
  virtual void carry_out(const core::Hold& command) = 0;
  virtual void carry_out(const core::FailRequest& command) = 0;
  /// Tells those that wait for the model how much of its image is there.
  virtual void tell_loading(ModelId model, std::uint64_t loaded_bytes) = 0;
};

/// The hosts, as a front sees them.
class HostsPort {
 public:
  virtual ~HostsPort() = default;
  /// Passes a Submit, FinishChoice or CancelRequest on, unless that life has ended.
  virtual void send(const Place& place, core::WorkerMessage message) = 0;
  /// How the model's engine on this device is reached, to which the manager has dispatched; an
  /// Error where that cannot be, with which the request fails.
  [[nodiscard]] virtual Result<core::EngineRoute> engine_route(ModelId model,
                                                               DeviceId device) const = 0;
};

}  // namespace heddle::serving
