#pragma once

#include "sim/cluster.h"
#include "sim/perf_model.h"

namespace heddle::sim {

/// Dimensions of Llama 3 8B.
inline ModelShape test_llama_8b() {
  return {4096, 14336, 32, 32, 8, 128, 128256, false};
}

/// Dimensions of Llama 3.2 1B.
inline ModelShape test_llama_1b() {
  return {2048, 8192, 16, 32, 8, 64, 128256, true};
}

/// An H100 with 80 GB.
inline GpuProfile test_h100() {
  return {.name = "H100-80G",
          .flops = 989.5e12,
          .bandwidth = 3.35e12,
          .memory = 80'000'000'000,
          .compute_efficiency = 0.728,
          .memory_efficiency = 0.927,
          .kv_efficiency = 0.80,
          .pointwise_efficiency = 0.640,
          .linear_overhead = 20.9e-6,
          .pointwise_overhead = 11.6e-6,
          .decode_overhead = 10e-6,
          .prefill_overhead = 22.5e-6,
          .prefill_self = 0.30,
          .prefill_cached = 0.415,
          .all_reduce = {{2, 16.6e-6, 282e9}, {4, 30.6e-6, 253e9}, {8, 28.6e-6, 194e9}}};
}

/// Servers of `gpus` H100 each, with a 100 Gb/s NIC and everything that starting costs.
inline ClusterSpec test_cluster(std::int64_t hosts, std::int64_t gpus) {
  HostSpec host{.name = "h",
                .gpu = test_h100(),
                .gpus = gpus,
                .usable = 0.9,
                .cache_bytes = 400'000'000'000,
                .links = {.nic = 10e9,
                          .pcie = 50e9,
                          .nvlink = 250e9,
                          .host_memory = 94e9,
                          .disk = 6e9,
                          .spread = 22.7e9},
                .startup = {.container = 2.0,
                            .context = 1.0,
                            .library = 4.7,
                            .engine = 1.5,
                            .attach = 0.55,
                            .communicator = 0.3,
                            .hop = 1e-3,
                            .group = 0.4,
                            .load_per_byte = 0.158e-9,
                            .cached_per_byte = 0.1e-9,
                            .map_per_page = 40e-6,
                            .swap_fixed = 0.235,
                            .swap_per_byte = 0.143e-9,
                            .restart = 20}};
  return {.hosts = std::vector<HostSpec>(static_cast<std::size_t>(hosts), host)};
}

/// `count` models with the dimensions of Llama 3 8B.
inline std::vector<ModelSpec> test_models(std::size_t count) {
  std::vector<ModelSpec> models;
  for (std::size_t i = 0; i < count; ++i) {
    models.push_back({.name = "m" + std::to_string(i),
                      .shape = test_llama_8b(),
                      .engine = {.fixed = 0.5e-3},
                      .slo_ttft = std::chrono::seconds(2),
                      .slo_tpot = std::chrono::milliseconds(50)});
  }
  return models;
}

}  // namespace heddle::sim
