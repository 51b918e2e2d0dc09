#pragma once

#include "core/manager/state.h"

namespace heddle::core::manager {

/// How many sequences of each device wait for memory, how many requests of each model for another
/// instance, and for how long they have.
class Shortages {
 public:
  explicit Shortages(State& state) : state_(state) {}

  /// As the device's worker says.
  void heard(DeviceId device, const DeviceReport& report);
  /// So many elastic engines there lack so many pages of KV in sum, `engine` most.
  void engines_lack(DeviceId device, std::int64_t engines, std::int64_t pages, ModelId engine);
  /// The worker is gone, and the sequences with it.
  void clear(DeviceId device);
  /// Counts what they have waited until now.
  void count(DeviceId device);
  /// So much of their waiting [s] was paid for by what was done for them.
  void pay(DeviceId device, double waited);
  /// So many pages are freed there for a model that lacks them. No load takes them before the
  /// instant that is returned.
  Instant owe(DeviceId device, ModelId model, std::int64_t pages);
  /// Some were recalled; no more are before `until`.
  void recalled(DeviceId device, Instant until);
  /// So many requests of the model wait for another instance.
  void count_unborne(ModelId model, std::int64_t requests);
  /// So much of their waiting [s] was paid for.
  void pay_unborne(ModelId model, double waited);

 private:
  void hear_late(DeviceState& device, const ResidentReport& resident);

  State& state_;
};

}  // namespace heddle::core::manager
