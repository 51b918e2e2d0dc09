#pragma once

#include <cstdint>
#include <span>

#include "policy/autoscale.h"

namespace heddle::sim {

enum class RouteAction : std::uint8_t {
  kSend,   ///< To `instance`.
  kStart,  ///< All are full and none is starting: start one; the request queues.
  kQueue,  ///< Until an instance has room.
};

struct Route {
  RouteAction action = RouteAction::kQueue;
  policy::ReplicaId instance{};  ///< Of kSend.
  friend bool operator==(const Route&, const Route&) = default;
};

/// Where a request goes, as in WarmServe's code: to the instance with the fewest running requests
/// (ties: the lower id), if these are fewer than `batch`.
[[nodiscard]] Route choose_route(std::span<const policy::InstanceView> running,
                                 std::int64_t starting,
                                 std::int64_t batch);

}  // namespace heddle::sim
