#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/manager/events.h"
#include "policy/admission.h"

namespace heddle::core::manager {

/// A device that may hold a model, and which of the model's footprints it takes there.
struct Seat {
  DeviceId device{};
  std::uint32_t shape = 0;  ///< Of Footprints::shapes().
  friend bool operator==(const Seat&, const Seat&) = default;
};

/// By device.
using Seats = std::vector<Seat>;

/// What a model needs on each device that may hold it. Devices on which it needs the same share a
/// footprint, and models that differ in their footprints alone share the list of seats: 10,000
/// models that may each be on 10,000 devices take little memory.
class Footprints {
 public:
  Footprints() = default;
  Footprints(std::shared_ptr<const Seats> seats, std::vector<policy::Footprint> shapes)
      : seats_(std::move(seats)), shapes_(std::move(shapes)) {}

  [[nodiscard]] std::size_t size() const { return seats().size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Ascending by device.
  [[nodiscard]] std::span<const Seat> seats() const {
    return seats_ ? std::span<const Seat>(*seats_) : std::span<const Seat>();
  }
  /// Those that some seat has, each about once.
  [[nodiscard]] const std::vector<policy::Footprint>& shapes() const { return shapes_; }
  /// The list that models share; null: there are no seats.
  [[nodiscard]] const std::shared_ptr<const Seats>& list() const { return seats_; }

  /// Null: the model cannot be there. O(log n), and O(1) where the device has the place `hint` in
  /// the list.
  [[nodiscard]] const policy::Footprint* find(DeviceId device, std::size_t hint = SIZE_MAX) const;
  [[nodiscard]] bool contains(DeviceId device) const { return find(device) != nullptr; }
  /// The first of the host's devices that may hold the model; null: none may. O(log n).
  [[nodiscard]] const Seat* first_at(HostId host) const;
  /// CHECK-fails where the model cannot be.
  [[nodiscard]] const policy::Footprint& at(DeviceId device) const;
  /// On the first of its devices. CHECK-fails where there is none.
  [[nodiscard]] const policy::Footprint& first() const;
  [[nodiscard]] DeviceId first_device() const { return seats().front().device; }

  /// The model needs this there, whatever it needed before. O(n).
  void put(DeviceId device, policy::Footprint footprint);
  /// It can be on none of these any more. O(n).
  template <class Gone>
  void erase_if(Gone gone) {
    if (std::ranges::any_of(seats(), [&](const Seat& seat) { return gone(seat.device); })) {
      auto left = std::make_shared<Seats>(*seats_);
      std::erase_if(*left, [&](const Seat& seat) { return gone(seat.device); });
      seats_ = std::move(left);
    }
  }

 private:
  std::shared_ptr<const Seats> seats_{};
  std::vector<policy::Footprint> shapes_{};
};

/// Makes the footprints of configured models; equal lists of seats become one. For one
/// configuration.
class FootprintMaker {
 public:
  explicit FootprintMaker(std::span<const ManagerDevice> devices);

  /// As the model is configured: on single devices, and on all devices of a kind.
  [[nodiscard]] Footprints make(const ManagerModel& model);

 private:
  [[nodiscard]] std::shared_ptr<const Seats> of_kinds(const std::vector<std::uint32_t>& kinds);
  [[nodiscard]] std::shared_ptr<const Seats> share(Seats seats);

  std::map<std::uint32_t, std::vector<DeviceId>> kinds_{};  // Devices, ascending.
  std::map<std::vector<std::uint32_t>, std::shared_ptr<const Seats>> by_kinds_{};
  std::multimap<std::uint64_t, std::shared_ptr<const Seats>> known_{};  // By hash.
};

}  // namespace heddle::core::manager
