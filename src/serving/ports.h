#pragma once

#include <cstdint>
#include <variant>

#include "base/http_address.h"
#include "base/ids.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "serving/place.h"

/// What a front has to do with: who decides about its requests, and who runs them.
namespace heddle::serving {

/// What becomes of requests, as the manager hears it.
using RequestNews = std::variant<core::RequestArrived,
                                 core::RequestFinished,
                                 core::RequestCancelled,
                                 core::RequestUnanswered>;

/// The manager, as a front sees it. It answers with Dispatch, Hold and FailRequest, perhaps from
/// within a call.
class ManagerPort {
 public:
  virtual ~ManagerPort() = default;
  virtual void tell(const RequestNews& news) = 0;
  /// As ManagerCore has it.
  [[nodiscard]] virtual std::int64_t tokens_max(ModelId model) const = 0;
};

/// The hosts, as a front sees them.
class HostsPort {
 public:
  virtual ~HostsPort() = default;
  /// Passes a Submit, FinishChoice or CancelRequest on, unless that life has ended.
  virtual void send(const Place& place, core::WorkerMessage message) = 0;
  /// Where an external engine listens that the manager has dispatched to.
  [[nodiscard]] virtual HttpAddress engine_address(ModelId model) const = 0;
};

}  // namespace heddle::serving
