#include "agent/agent_setup.h"

#include <string>
#include <utility>

namespace heddle::agent {
namespace {

/// Each life has a log of its own: a core begins anew with it.
std::string event_log(const AgentSetup& setup, DeviceId device, WorkerEpoch epoch) {
  return setup.event_log.empty() ? ""
                                 : setup.event_log + ".worker." + std::to_string(device.value()) +
                                       "." + std::to_string(epoch.value());
}

}  // namespace

core::AgentOptions core_options(const AgentSetup& setup) {
  core::AgentOptions options;
  options.host_pages = setup.host_pages;
  options.incarnation = setup.incarnation;
  for (const DeviceSetup& device : setup.devices) {
    options.devices.push_back({.id = device.id,
                               .pages = device.pages,
                               .kv_pages = device.kv_pages,
                               .copy = device.copy,
                               .own_memory = device.gpu.has_value()});
  }
  return options;
}

rpc::WorkerHello worker_hello(const AgentSetup& setup,
                              const DeviceSetup& device,
                              WorkerEpoch epoch,
                              std::vector<PageId> pages) {
  return {.device = device.id,
          .epoch = epoch,
          .name = device.name,
          .cores = device.cores,
          .gpu = device.gpu,
          .page_bytes = setup.page_bytes,
          .pages = std::move(pages),
          .load_bandwidth = device.load_bandwidth,
          .pace = device.pace,
          .step = device.step,
          .log_level = setup.log_level,
          .log_format = setup.log_format,
          .event_log = event_log(setup, device.id, epoch),
          .prefix_cache = device.prefix_cache,
          .device_pages = device.pages,
          .queue = device.queue,
          .fixed_parts = device.fixed_parts,
          .kv_pages = device.kv_pages};
}

}  // namespace heddle::agent
