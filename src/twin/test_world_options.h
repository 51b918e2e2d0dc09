#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/manager/manager_core.h"
#include "policy/device_queue.h"

/// For tests: what a World is made of.
namespace heddle::twin::test {

using namespace std::chrono_literals;

struct WorldOptions {
  std::uint64_t seed = 0;
  int hosts = 0;    ///< Of a cluster; 0: one, which is none.
  int devices = 2;  ///< Of each host.
  int models = 4;
  std::int64_t host_pages = 24;
  std::int64_t device_pages = 16;
  std::int64_t image_pages = 0;   ///< Of every model; 0: drawn.
  std::int64_t uneven_pages = 0;  ///< Every device has so many more than the one before.
  bool copy = false;
  int requests = 60;
  Duration arrivals = 400ms;  ///< They come within this, as deaths do.
  int deaths = 0;             ///< FaultPlan::deaths.
  int manager_deaths = 0;     ///< FaultPlan has these, too.
  int manager_cuts = 0;
  int gateway_cuts = 0;
  int host_deaths = 0;
  int cuts = 0;
  int one_way_cuts = 0;
  int resets = 0;
  std::optional<std::uint64_t> manager_dies_after{};
  std::size_t gateways = 1;  ///< Of a cluster.
  int read_failures = 0;     ///< Of the first reads.
  int open_failures = 0;
  bool cancels = false;
  bool admin = false;
  bool reloads = false;
  bool pin_one = false;
  int sharded = 0;                ///< So many of the models are sharded over two devices.
  bool beside = false;            ///< All of these may be beside others.
  int fetched = 0;                ///< So many of the others come over a network, and may be cut.
  std::int64_t prefix_cache = 0;  ///< WorkerOptions::prefix_cache.
  Duration min_residence = 20ms;
  Duration drain_after = 30ms;
  Duration turn{};      ///< ManagerOptions::turn.
  Duration ttft = 10s;  ///< The objective of every model.
  policy::QueueRule queue = policy::QueueRule::kMooreHodgson;
  std::int64_t fixed_parts = 0;     ///< WorkerOptions::fixed_parts.
  std::int64_t graph_pages = 0;     ///< WorkerOptions::graph_pages, and what models want.
  bool stuck_graphs = false;        ///< Now and then their pages cannot be had again.
  std::int64_t prompt_tokens = 30;  ///< The longest prompt.
  bool priorities = true;
  std::int64_t batch = 32;         ///< ManagerModel::batch.
  core::PlannerOptions planner{};  ///< Its period and windows are short.

  /// By host.
  [[nodiscard]] std::vector<HostId> host_ids() const {
    std::vector<HostId> all;
    for (int host = 1; host <= hosts; ++host) {
      all.emplace_back(static_cast<std::uint64_t>(host));
    }
    return hosts == 0 ? std::vector<HostId>{HostId(0)} : all;
  }
  /// Of a device, by its number within its host.
  [[nodiscard]] std::int64_t pages_of(int device) const {
    return device_pages + device * uneven_pages;
  }
};

}  // namespace heddle::twin::test
