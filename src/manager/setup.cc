#include "manager/setup.h"

#include <algorithm>
#include <string>
#include <utility>

namespace heddle::manager {

namespace {

/// Shorter chunks of prefill cost more in reading weights than they help others.
constexpr std::int64_t kMinPrefillTokens = 16;

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

bool same_device(const config::DeviceConfig& a, const config::DeviceConfig& b) {
  return a.name == b.name && a.kind == b.kind && a.cores == b.cores && a.memory == b.memory &&
         a.page == b.page && a.load_bandwidth == b.load_bandwidth && a.copy == b.copy &&
         a.pace.step == b.pace.step && a.pace.token == b.pace.token &&
         a.step_budget == b.step_budget && a.prefix_cache == b.prefix_cache;
}

}  // namespace

Result<agent::AgentSetup> agent_setup(const config::Config& config, std::int64_t max_batch_tokens) {
  const std::uint64_t page = config.devices.front().page;
  agent::AgentSetup setup{.page_bytes = static_cast<std::size_t>(page),
                          .host_pages = static_cast<std::int64_t>(config.host.memory / page),
                          .log_level = config.log_level,
                          .log_format = config.log_format,
                          .event_log = config.event_log};
  std::uint64_t id = 0;
  for (const config::DeviceConfig& device : config.devices) {
    if (device.page != page) {
      return Error{Code::kInvalidArgument,
                   "device " + device.name + " has pages of " + text(device.page) +
                       " bytes and device " + config.devices.front().name + " of " + text(page) +
                       "; all devices of a host share one arena and so one page size"};
    }
    if (device.memory < page) {
      return Error{Code::kInvalidArgument,
                   "device " + device.name + " has " + text(device.memory) +
                       " bytes of memory, less than one page of " + text(page)};
    }
    setup.devices.push_back({.id = DeviceId(id++),
                             .name = device.name,
                             .cores = device.cores,
                             .pages = static_cast<std::int64_t>(device.memory / page),
                             .load_bandwidth = device.load_bandwidth,
                             .copy = device.copy,
                             .pace = {.step = device.pace.step, .token = device.pace.token},
                             .step = {.budget = device.step_budget,
                                      .max_batch_tokens = max_batch_tokens,
                                      .min_prefill_tokens = kMinPrefillTokens},
                             .prefix_cache = device.prefix_cache});
  }
  if (setup.host_pages < 1) {
    return Error{Code::kInvalidArgument,
                 "host has " + text(config.host.memory) +
                     " bytes of memory for images, less than one page of " + text(page)};
  }
  return setup;
}

core::Configure core_setup(const config::Config& config,
                           const std::vector<ConfiguredModel>& models) {
  core::Configure configure;
  configure.options.queue_per_model = static_cast<std::size_t>(config.limits.queue);
  std::uint64_t id = 0;
  for (const config::DeviceConfig& device : config.devices) {
    configure.devices.push_back({.id = DeviceId(id++),
                                 .name = device.name,
                                 .pages = static_cast<std::int64_t>(device.memory / device.page),
                                 .page_bytes = device.page});
  }
  for (const ConfiguredModel& model : models) {
    if (!model.host) {
      continue;
    }
    const std::int64_t longest = model.host->spec.max_position;
    core::ManagerModel entry{
        .id = model.id,
        .name = model.config.id,
        .image_bytes = model.host->image_bytes,
        .context = model.config.context > 0 ? std::min(model.config.context, longest) : longest,
        .pin = model.config.pin,
        .min_residence = model.config.min_residence};
    for (const core::ManagerDevice& device : configure.devices) {
      entry.footprints[device.id] = model.host->footprint;
    }
    configure.models.push_back(std::move(entry));
  }
  return configure;
}

Result<void> check_reload(const config::Config& before, const config::Config& now) {
  if (!std::equal(before.devices.begin(),
                  before.devices.end(),
                  now.devices.begin(),
                  now.devices.end(),
                  same_device)) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `devices` has changed, which takes a restart"};
  }
  if (before.host.memory != now.host.memory) {
    return Error{Code::kFailedPrecondition,
                 "reload configuration: `host.memory` has changed, which takes a restart"};
  }
  return {};
}

}  // namespace heddle::manager
