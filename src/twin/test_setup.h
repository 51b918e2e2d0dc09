#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rng.h"
#include "twin/faults.h"
#include "twin/setup.h"
#include "twin/test_models.h"
#include "twin/test_world_options.h"

/// For tests: worlds, as Twin and Cluster are told of them.
namespace heddle::twin::test {

inline core::AgentOptions agent_options(const WorldOptions& options, HostId host = HostId()) {
  core::AgentOptions agent{.host_pages = options.host_pages,
                           .restart_first = 1ms,
                           .restart_most = 20ms,
                           .restart_calm = 1s};
  for (int i = 0; i < options.devices; ++i) {
    agent.devices.push_back({.id = device_id(host, static_cast<std::uint64_t>(i)),
                             .pages = options.pages_of(i),
                             .copy = options.copy});
  }
  return agent;
}

inline HostSetup host_of_options(const WorldOptions& options, HostId host) {
  HostSetup setup{.agent = agent_options(options, host), .nic = kNetworkRate};
  for (const core::AgentDevice& device : setup.agent.devices) {
    setup.devices.push_back(
        {.device = device,
         .worker = {.device = device.id,
                    .device_pages = device.pages,
                    .step = {.budget = 2ms, .max_batch_tokens = 16, .min_prefill_tokens = 4},
                    .prefix_cache = options.prefix_cache,
                    .queue = options.queue,
                    .fixed_parts = options.fixed_parts,
                    .graph_pages = options.graph_pages,
                    .report_interval = 2ms},
         .link = kPageBytes / 50e-6,
         .map_page = 5e-6,
         .step_overhead = {}});
  }
  return setup;
}

/// Times between hosts are a hundredth of what they are live, as everything here is short.
inline TwinSetup setup_of(const WorldOptions& options, const DrawnModels& models) {
  TwinSetup setup{.manager = models.manager(),
                  .hosts = {},
                  .gateways = options.gateways,
                  .times = {.hop = 20us,
                            .silence = 12'500us,
                            .again = 1ms,
                            .patience = 50ms,
                            .settling = 5ms,
                            .first_host = 50ms,
                            .grace = 20ms,
                            .rest = 2'500us,
                            .open = 1ms},
                  .models = models.host(),
                  .paths = {.arrive = {},
                            .hop = 10us,
                            .answer = {},
                            .start = 1ms,
                            .read = kPageBytes / 100e-6,
                            .read_part = kPageBytes,
                            .fetch = {.begin = 30us,
                                      .credit = 2500us,
                                      .ahead = 20us,
                                      .patience = 20ms,
                                      .look = 1ms}},
                  .checked = true};
  for (const HostId host : options.host_ids()) {
    setup.hosts.push_back(host_of_options(options, host));
  }
  return setup;
}

inline FaultPlan fault_plan(const WorldOptions& options, Rng& rng) {
  return {
      .seed = rng.next(),
      .late = {.hop = 490us,
               .start = 4ms,
               .exit = 2ms,
               .read = 1400us,
               .map = 280us,
               .copy = 450us,
               .step = 1900us,
               .grammar = 3ms},
      .deaths = options.deaths,
      .deaths_within = options.arrivals,
      .read_failures = options.read_failures,
      .open_failures = options.open_failures,
      .stuck_graphs = options.stuck_graphs,
      .manager_deaths = options.manager_deaths,
      .manager_cuts = options.manager_cuts,
      .gateway_cuts = options.gateway_cuts,
      .away =
          options.hosts + options.manager_deaths + options.manager_cuts + options.gateway_cuts > 0
              ? 20ms
              : 0ms,
      .host_deaths = options.host_deaths,
      .cuts = options.cuts,
      .one_way_cuts = options.one_way_cuts,
      .resets = options.resets,
      .manager_dies_after = options.manager_dies_after};
}

inline Ask draw_ask(const WorldOptions& options, DrawnModels& models, Rng& rng) {
  Ask ask{.model = models.any(),
          .input_tokens = between(rng, 1, options.prompt_tokens),
          .output_tokens = between(rng, 1, 30),
          .choices = static_cast<std::size_t>(between(rng, 1, 2)),
          .priority = static_cast<std::int32_t>(rng.below(options.priorities ? 2 : 1)),
          .grammar = rng.below(4) == 0,
          .cache_salt = rng.below(5) == 0 ? "another" : ""};
  if (options.uneven_pages > 0 && rng.below(3) == 0) {
    ask.output_tokens = between(rng, 30, 150);
    ask.open_ended = rng.below(2) == 0;
  }
  if (options.cancels && rng.below(8) == 0) {
    ask.patience = Duration(between(rng, 1'000'000, 60'000'000));
  }
  return ask;
}

}  // namespace heddle::twin::test
