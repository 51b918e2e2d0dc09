#include "sim/planes/routing.h"

#include <algorithm>
#include <tuple>

namespace heddle::sim {

Route choose_route(std::span<const policy::InstanceView> running,
                   std::int64_t starting,
                   std::int64_t batch) {
  const auto least =
      std::min_element(running.begin(),
                       running.end(),
                       [](const policy::InstanceView& a, const policy::InstanceView& b) {
                         return std::tie(a.running, a.id) < std::tie(b.running, b.id);
                       });
  if (least != running.end() && least->running < batch) {
    return {.action = RouteAction::kSend, .instance = least->id};
  }
  return {.action = starting == 0 ? RouteAction::kStart : RouteAction::kQueue};
}

}  // namespace heddle::sim
