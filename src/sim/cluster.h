#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "sim/perf_model.h"

namespace heddle::sim {

using GpuId = DeviceId;
/// What starting an engine costs on one kind of server; stages that a system overlaps or leaves out
/// are its own affair. All in seconds, or seconds per byte.
struct StartupProfile {
  double container = 0;        ///< tcc: a container is created.
  double context = 0;          ///< tcu: the device context.
  double library = 0;          ///< tl: imports.
  double engine = 0;           ///< What a stock engine does once weights are there.
  double attach = 0;           ///< A prepared engine takes over weights that are resident.
  double communicator = 0;     ///< A group of devices is set up.
  double hop = 0;              ///< tn: from one pipeline stage to the next.
  double group = 0;            ///< A pipeline is formed.
  double load_per_byte = 0;    ///< A stock loader, in series after the fetch.
  double cached_per_byte = 0;  ///< The same from host memory.
  double map_per_page = 0;     ///< Mapping or unmapping one page.
  double swap_fixed = 0;       ///< A suspended engine's return ...
  double swap_per_byte = 0;    ///< ... and for each byte of its image.
  double restart = 0;          ///< A stock engine is stopped and another started.
};

/// Bytes per second that links really deliver.
struct LinkRates {
  double nic = 0;          ///< Of the server, from the store.
  double pcie = 0;         ///< Host to one GPU, pinned.
  double nvlink = 0;       ///< Between GPUs of the server; 0: none.
  double host_memory = 0;  ///< All copies of the server together.
  double disk = 0;         ///< Local tier below host memory; 0: none.
  double spread = 0;       ///< One model's load through all GPUs of the server; 0: not possible.
};

struct HostSpec {
  std::string name{};
  GpuProfile gpu{};
  std::int64_t gpus = 0;
  double usable = 0.9;           ///< Part of a GPU's memory that pages may have.
  std::int64_t cache_bytes = 0;  ///< Host memory for weights.
  LinkRates links{};
  StartupProfile startup{};
  double price = 0;  ///< Of the server for an hour, in any currency; 0: not known.
};

struct ClusterSpec {
  std::vector<HostSpec> hosts{};
  std::int64_t page_bytes = 2 << 20;
};

/// A model that is served.
struct ModelSpec {
  std::string name{};
  ModelShape shape{};
  EngineProfile engine{};
  std::int64_t tp = 1;
  std::int64_t max_sequences = 256;      ///< B of an instance.
  std::int64_t max_batch_tokens = 2048;  ///< Prefill chunk.
  bool prompts_elsewhere = false;        ///< Read on other GPUs, which are not modelled.
  /// An external engine serves it: policy sets that tell engines apart (heddle) suspend it to host
  /// memory and resume it as a whole.
  bool external = false;
  std::int64_t overhead_bytes = 1 << 30;  ///< Per GPU: context, workspace, activations.
  Duration slo_ttft{};
  Duration slo_tpot{};
  std::int64_t most_tokens = 0;  ///< Context limit; 0: what fits.

  [[nodiscard]] std::int64_t weight_bytes() const { return sim::weight_bytes(shape); }
  [[nodiscard]] std::int64_t kv_bytes() const { return sim::kv_bytes_per_token(shape); }
};

/// One request of a workload.
struct TraceRow {
  Instant arrival{};
  ModelId model{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// Where requests come from, one at a time, in order of arrival.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// The next request; false when there are no more.
  virtual bool next(TraceRow& row) = 0;
};

}  // namespace heddle::sim
