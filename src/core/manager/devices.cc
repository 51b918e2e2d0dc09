#include "core/manager/devices.h"

#include <utility>

#include "base/check.h"
#include "core/manager/index.h"
#include "policy/backoff.h"

namespace heddle::core::manager {

void Devices::up(const WorkerUp& up, bool found) {
  DeviceState& device = state_.devices.at(up.device);
  HEDDLE_CHECK(!device.up);
  device.restarts += device.epoch == WorkerEpoch{} || device.epoch == up.epoch ? 0 : 1;
  device.up = true;
  device.found = found;
  device.epoch = up.epoch;
  device.version = 0;
  device.refusals = 0;
  device.paused_until = state_.now;
  device.usage.total = device.config.pages;  // It says so itself when something has changed.
  for (const auto& [model, loan] : device.guests) {
    device.usage.total -= loan.pages;
  }
  for (const auto& [model, instance] : device.instances) {
    device.usage.total -= instance.kv_pages;  // Of engines, which outlive a worker.
  }
  device.usage.free = device.usage.total;
  reindex(state_, up.device);
}

void Devices::down(DeviceId id) {
  DeviceState& device = state_.devices.at(id);
  device.up = false;
  device.usage = {};
  device.step = {};
  reindex(state_, id);
}

void Devices::leaves(DeviceId device, bool leaving) {
  state_.devices.at(device).leaving = leaving;
  reindex(state_, device);
}

void Devices::version(DeviceId device, std::uint64_t version) {
  state_.devices.at(device).version = version;
}

void Devices::usage(DeviceId device, const ledger::PoolUsage& usage) {
  DeviceState& there = state_.devices.at(device);
  there.usage = usage;
  if (there.refusals > 0) {
    replace(state_, device);  // What CUDA graphs have may be in the way.
  }
}

void Devices::step(DeviceId device, Duration step) {
  state_.devices.at(device).step = step;
}

void Devices::refused(DeviceId id) {
  DeviceState& device = state_.devices.at(id);
  ++device.refusals;
  device.paused_until = state_.now + policy::backoff(device.refusals,
                                                     state_.options.load_retry_first,
                                                     state_.options.load_cooldown);
  replace(state_, id);
}

void Devices::accepted(DeviceId device) {
  if (std::exchange(state_.devices.at(device).refusals, 0) > 0) {
    replace(state_, device);
  }
}

void Devices::pause(DeviceId device, Instant until) {
  state_.devices.at(device).paused_until = until;
  replace(state_, device);
}

}  // namespace heddle::core::manager
