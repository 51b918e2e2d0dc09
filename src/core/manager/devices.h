#pragma once

#include "core/manager/state.h"

namespace heddle::core::manager {

/// The workers of devices: which is up, what it last said of its pages, and when it is left alone.
class Devices {
 public:
  explicit Devices(State& state) : state_(state) {}

  /// @param found  As DeviceState has it.
  void up(const WorkerUp& up, bool found = false);
  void down(DeviceId device);
  /// Its host is to go, or no longer.
  void leaves(DeviceId device, bool leaving);
  /// As its worker numbers what it has refused and what has failed.
  void version(DeviceId device, std::uint64_t version);
  void usage(DeviceId device, const ledger::PoolUsage& usage);
  /// What a step takes there, as DeviceReport has it.
  void step(DeviceId device, Duration step);
  /// It refused a load: nothing is loaded there for a while, longer with each refusal in a row.
  void refused(DeviceId device);
  /// A load came to its end there.
  void accepted(DeviceId device);
  /// Nothing is loaded there before `until`.
  void pause(DeviceId device, Instant until);

 private:
  State& state_;
};

}  // namespace heddle::core::manager
