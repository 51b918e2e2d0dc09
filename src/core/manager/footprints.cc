#include "core/manager/footprints.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::core::manager {
namespace {

Seats::const_iterator seat_at(const Seats& seats, DeviceId device) {
  return std::ranges::lower_bound(seats, device, {}, &Seat::device);
}

/// FNV-1a over ids and shapes.
std::uint64_t hash_of(const Seats& seats) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325ULL;
  for (const Seat& seat : seats) {
    hash = (hash ^ seat.device.value()) * 0x0000'0100'0000'01b3ULL;
    hash = (hash ^ seat.shape) * 0x0000'0100'0000'01b3ULL;
  }
  return hash;
}

/// The number of this footprint among the shapes, to which it is added if need be.
std::uint32_t shape_of(std::vector<policy::Footprint>& shapes, policy::Footprint footprint) {
  const auto found = std::ranges::find(shapes, footprint);
  const auto shape = static_cast<std::uint32_t>(found - shapes.begin());
  if (found == shapes.end()) {
    shapes.push_back(std::move(footprint));
  }
  return shape;
}

}  // namespace

const policy::Footprint* Footprints::find(DeviceId device, std::size_t hint) const {
  if (!seats_) {
    return nullptr;
  }
  if (hint < seats_->size() && (*seats_)[hint].device == device) {
    return &shapes_[(*seats_)[hint].shape];
  }
  const auto found = seat_at(*seats_, device);
  return found == seats_->end() || found->device != device ? nullptr : &shapes_[found->shape];
}

const Seat* Footprints::first_at(HostId host) const {
  if (!seats_) {
    return nullptr;
  }
  const auto found = seat_at(*seats_, device_id(host, 0));
  return found == seats_->end() || host_of(found->device) != host ? nullptr : &*found;
}

const policy::Footprint& Footprints::at(DeviceId device) const {
  const policy::Footprint* found = find(device);
  HEDDLE_CHECK(found != nullptr);
  return *found;
}

const policy::Footprint& Footprints::first() const {
  HEDDLE_CHECK(!empty());
  return shapes_[seats().front().shape];
}

void Footprints::put(DeviceId device, policy::Footprint footprint) {
  auto changed = seats_ ? std::make_shared<Seats>(*seats_) : std::make_shared<Seats>();
  const std::uint32_t shape = shape_of(shapes_, std::move(footprint));
  const auto at = changed->begin() + (seat_at(*changed, device) - changed->cbegin());
  if (at != changed->end() && at->device == device) {
    at->shape = shape;
  } else {
    changed->insert(at, {.device = device, .shape = shape});
  }
  seats_ = std::move(changed);
}

FootprintMaker::FootprintMaker(std::span<const ManagerDevice> devices) {
  for (const ManagerDevice& device : devices) {
    kinds_[device.kind].push_back(device.id);
  }
  for (auto& [kind, all] : kinds_) {
    std::ranges::sort(all);
  }
}

Footprints FootprintMaker::make(const ManagerModel& model) {
  std::vector<policy::Footprint> shapes;
  std::vector<std::uint32_t> kinds;
  for (const auto& [kind, footprint] : model.on_kinds) {
    if (kinds_.contains(kind)) {
      kinds.push_back(kind);
      shapes.push_back(footprint);
    }
  }
  std::shared_ptr<const Seats> list = kinds.empty() ? nullptr : of_kinds(kinds);
  if (model.footprints.empty()) {
    return {std::move(list), std::move(shapes)};
  }
  Seats seats;
  for (const auto& [device, footprint] : model.footprints) {
    seats.push_back({.device = device, .shape = shape_of(shapes, footprint)});
  }
  if (list) {  // What is said of a device itself holds there.
    Seats both;
    std::ranges::set_union(
        seats, *list, std::back_inserter(both), {}, &Seat::device, &Seat::device);
    seats = std::move(both);
  }
  return {share(std::move(seats)), std::move(shapes)};
}

std::shared_ptr<const Seats> FootprintMaker::of_kinds(const std::vector<std::uint32_t>& kinds) {
  const auto known = by_kinds_.find(kinds);
  if (known != by_kinds_.end()) {
    return known->second;
  }
  Seats seats;
  for (std::uint32_t shape = 0; shape < kinds.size(); ++shape) {
    for (const DeviceId device : kinds_.at(kinds[shape])) {
      seats.push_back({.device = device, .shape = shape});
    }
  }
  std::ranges::sort(seats, {}, &Seat::device);
  return by_kinds_[kinds] = share(std::move(seats));
}

std::shared_ptr<const Seats> FootprintMaker::share(Seats seats) {
  const std::uint64_t hash = hash_of(seats);
  const auto [first, last] = known_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (*at->second == seats) {
      return at->second;
    }
  }
  return known_.emplace(hash, std::make_shared<const Seats>(std::move(seats)))->second;
}

}  // namespace heddle::core::manager
