#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/image_fetcher.h"
#include "base/ids.h"
#include "base/log.h"
#include "core/agent_core.h"
#include "policy/batching.h"
#include "policy/device_queue.h"
#include "rpc/messages.h"

namespace heddle::agent {

/// A device of this host, as configured.
struct DeviceSetup {
  DeviceId id{};
  std::string name{};
  std::vector<int> cores{};
  std::optional<int> gpu{};  ///< The CUDA driver's number of it; none: it is part of the host.
  std::int64_t pages = 0;
  std::int64_t kv_pages = 0;         ///< As core::AgentDevice has it.
  std::uint64_t load_bandwidth = 0;  ///< [bytes/s]; 0: as fast as it goes.
  bool copy = false;                 ///< Always so with a GPU.
  rpc::Pace pace{};
  policy::StepOptions step{};
  std::int64_t prefix_cache = 0;                               ///< As core::WorkerOptions has it.
  policy::QueueRule queue = policy::QueueRule::kMooreHodgson;  ///< Likewise.
  std::int64_t fixed_parts = 0;                                ///< Likewise.
};

struct AgentSetup {
  std::size_t page_bytes = 0;   ///< Of the arena and of every device.
  std::int64_t host_pages = 0;  ///< Budget of the host cache.
  std::vector<DeviceSetup> devices{};
  log::Level log_level = log::Level::kInfo;  ///< Of the workers.
  log::Format log_format = log::Format::kText;
  std::string event_log{};        ///< Workers append .worker.DEVICE.EPOCH; empty: no log.
  std::uint64_t incarnation = 0;  ///< As core::AgentOptions has it.
  FetchSetup fetch{};
};

/// What AgentCore decides by, which a replay of its events needs too.
[[nodiscard]] core::AgentOptions core_options(const AgentSetup& setup);

/// What the worker of a device is told as a life of it begins, with these pages free.
[[nodiscard]] rpc::WorkerHello worker_hello(const AgentSetup& setup,
                                            const DeviceSetup& device,
                                            WorkerEpoch epoch,
                                            std::vector<PageId> pages);

}  // namespace heddle::agent
