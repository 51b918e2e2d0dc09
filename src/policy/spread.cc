#include "policy/spread.h"

#include <algorithm>

namespace heddle::policy {

std::int64_t movable(std::span<const InstanceLoad> instances,
                     std::size_t from,
                     std::int64_t batch) {
  const InstanceLoad& here = instances[from];
  std::int64_t room = 0;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const InstanceLoad& there = instances[i];
    if (i != from && there.open && there.serves && there.complete) {
      const std::int64_t alike = (here.in_flight - there.in_flight) / 2;
      room += std::max<std::int64_t>(0, std::min(batch - there.in_flight, alike));
    }
  }
  const std::int64_t waiting = std::max(here.late, here.in_flight - batch);
  return here.serves ? std::clamp<std::int64_t>(waiting, 0, room) : 0;
}

std::int64_t unborne(std::span<const InstanceLoad> instances,
                     std::int64_t in_system,
                     std::int64_t batch) {
  std::int64_t coming = 0;
  std::int64_t late = 0;
  for (const InstanceLoad& instance : instances) {
    coming += instance.serves && instance.complete ? 0 : 1;
    late += instance.serves ? instance.late : 0;
  }
  const std::int64_t all = std::ssize(instances);
  return all == 0 ? 0 : std::max<std::int64_t>({0, late - coming * batch, in_system - all * batch});
}

bool pays_beside(Duration waited_for, Duration more, Duration load, double lost) {
  return to_seconds(waited_for - more - load) > lost;
}

}  // namespace heddle::policy
