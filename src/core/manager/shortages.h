#pragma once

#include "core/manager/state.h"

namespace heddle::core::manager {

/// How many sequences of each device wait for memory, and for how long they have.
class Shortages {
 public:
  explicit Shortages(State& state) : state_(state) {}

  /// As the device's worker says.
  void heard(DeviceId device, const DeviceReport& report);
  /// The worker is gone, and the sequences with it.
  void clear(DeviceId device);
  /// Counts what they have waited until now.
  void count(DeviceId device);
  /// So much of their waiting [s] was paid for by what was done for them.
  void pay(DeviceId device, double waited);
  /// Some were recalled; no more are before `until`.
  void recalled(DeviceId device, Instant until);

 private:
  State& state_;
};

}  // namespace heddle::core::manager
