#include "sim/planes/planes.h"

#include <array>

#include "sim/planes/dedicated.h"
#include "sim/planes/hydraserve.h"
#include "sim/planes/live.h"
#include "sim/planes/muxserve.h"
#include "sim/planes/prism.h"
#include "sim/planes/qlm.h"
#include "sim/planes/serverless.h"
#include "sim/planes/static_partition.h"
#include "sim/planes/swapserve.h"
#include "sim/planes/warmserve.h"
#include "sim/planes/weaver.h"

namespace heddle::sim {
namespace {

using Make = std::unique_ptr<ControlPlane> (*)(const PlaneInputs&, Flags&);

template <class Plane>
std::unique_ptr<ControlPlane> offline(const PlaneInputs& inputs, Flags& /*flags*/) {
  return std::make_unique<Plane>(inputs);
}

template <class Plane>
std::unique_ptr<ControlPlane> offline_with_flags(const PlaneInputs& inputs, Flags& flags) {
  return std::make_unique<Plane>(inputs, flags);
}

template <class Plane>
std::unique_ptr<ControlPlane> online(const PlaneInputs& /*inputs*/, Flags& flags) {
  return std::make_unique<Plane>(flags);
}

template <ServerlessKind Kind>
std::unique_ptr<ControlPlane> serverless(const PlaneInputs& /*inputs*/, Flags& flags) {
  return std::make_unique<ServerlessPlane>(Kind, flags);
}

template <Prewarming Kind>
std::unique_ptr<ControlPlane> warmserve(const PlaneInputs& /*inputs*/, Flags& flags) {
  return std::make_unique<WarmServePlane>(Kind, flags);
}

template <MuxKind Kind>
std::unique_ptr<ControlPlane> muxserve(const PlaneInputs& inputs, Flags& flags) {
  return std::make_unique<MuxServePlane>(Kind, inputs, flags);
}

constexpr std::array kEntries{
    PlaneEntry{"dedicated", "every model has GPUs of its own", ""},
    PlaneEntry{"static", "GPUs cut in slices that never change", "mig"},
    PlaneEntry{"serverless-vllm",
               "stock engines started on demand from the store",
               "keep_alive target kv_gb cache"},
    PlaneEntry{"serverlessllm",
               "streaming loads, weights cached in server memory",
               "keep_alive target kv_gb cache"},
    PlaneEntry{"muxserve", "models put together once; quotas of KV, shares of SMs", "period"},
    PlaneEntry{"muxserve++", "the same placement, KV for whoever comes first", "period"},
    PlaneEntry{"qlm", "groups of requests wait for a GPU that serves one model", "swap group seed"},
    PlaneEntry{"sllm-gpu", "autoscaled; stopped models stay until overwritten", "window day paper"},
    PlaneEntry{"warmserve",
               "autoscaled; idle GPUs hold weights of what is expected",
               "prewarm proactive placement paper window day"},
    PlaneEntry{"hydraserve",
               "cold starts through several servers at once",
               "keep_alive cache edf stages merge paper"},
    PlaneEntry{"prism",
               "all models share all GPUs; KV pressure places them, deadlines order them",
               "queue planner migrate requests"},
    PlaneEntry{"weaver", "hot models keep KV on the GPUs of cold ones", "share split"},
    PlaneEntry{"swapserve",
               "whole engines are suspended to host memory and resumed",
               "paper kv_gb residence"},
    PlaneEntry{
        "heddle",
        "the manager of heddle serve, as it decides there",
        "prewarm replicas pressure value weave queue stages shares ttl preload kv_gb window day"},
};

constexpr std::array<Make, kEntries.size()> kMakers{
    offline<DedicatedPlane>,
    offline_with_flags<StaticPartitionPlane>,
    serverless<ServerlessKind::kVllm>,
    serverless<ServerlessKind::kLlm>,
    muxserve<MuxKind::kQuotas>,
    muxserve<MuxKind::kElastic>,
    online<QlmPlane>,
    warmserve<Prewarming::kLeftover>,
    warmserve<Prewarming::kForecast>,
    online<HydraServePlane>,
    offline_with_flags<PrismPlane>,
    offline_with_flags<WeaverPlane>,
    online<SwapServePlane>,
    online<LivePlane>,
};

}  // namespace

std::span<const PlaneEntry> plane_entries() {
  return kEntries;
}

Result<std::unique_ptr<ControlPlane>> make_plane(std::string_view name, const PlaneInputs& inputs) {
  std::string known;
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries.at(i).name == name) {
      Flags flags(inputs.flags);
      std::unique_ptr<ControlPlane> plane = kMakers.at(i)(inputs, flags);
      if (const std::string problem = flags.problem(); !problem.empty()) {
        return Error{.code = Code::kInvalidArgument,
                     .message = "policy " + std::string(name) + ": " + problem};
      }
      return plane;
    }
    known += (known.empty() ? "" : ", ") + std::string(kEntries.at(i).name);
  }
  return Error{.code = Code::kNotFound,
               .message = "there is no policy \"" + std::string(name) + "\"; there are: " + known};
}

}  // namespace heddle::sim
