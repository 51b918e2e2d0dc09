#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"

namespace heddle::spec {
struct ModelSpec;
}  // namespace heddle::spec

namespace heddle::sim {

// How long things take on hardware that is described by a dozen numbers: the calibrated roofline by
// which the simulator predicts. The numbers themselves are data (data/perf/), never code.
// Seconds are doubles here and become whole nanoseconds where time begins to run. Reproducible to
// the last bit: only +, -, *, /, sqrt and base/exact_math.h.

/// The dimensions of a dense decoder with gated MLP and 16-bit weights.
struct ModelShape {
  std::int64_t hidden = 0;        ///< h
  std::int64_t intermediate = 0;  ///< f
  std::int64_t layers = 0;        ///< L
  std::int64_t heads = 0;         ///< nq
  std::int64_t kv_heads = 0;      ///< nkv
  std::int64_t head_dim = 0;      ///< hd
  std::int64_t vocab = 0;         ///< V
  bool tied_embeddings = false;
  std::int64_t kv_row_bytes = 0;  ///< Of one head of a token; 0: in 16 bits a number.
};

/// Those of a model that is served, whose KV may be codes (ModelSpec::kv); of experts, as wide an
/// MLP as one token takes; of layers whose heads differ in size, heads of their mean size that take
/// as much KV.
[[nodiscard]] ModelShape shape_of(const spec::ModelSpec& model);

/// Weights of the linear operators of one layer: h*(nq+2nkv)*hd + nq*hd*h + 3*h*f.
[[nodiscard]] std::int64_t linear_parameters(const ModelShape& model);
/// All weights, embedding and head included.
[[nodiscard]] std::int64_t parameters(const ModelShape& model);
/// Bytes of all weights in 16 bits.
[[nodiscard]] std::int64_t weight_bytes(const ModelShape& model);
/// Bytes of keys and values of one token, all layers: 2*L*nkv*kv_row_bytes, in 16 bits 4*L*nkv*hd.
[[nodiscard]] std::int64_t kv_bytes_per_token(const ModelShape& model);

/// An all-reduce over `tp` devices of one server: latency + bytes / bandwidth.
struct AllReduce {
  std::int64_t tp = 0;
  double latency = 0;    ///< [s]
  double bandwidth = 0;  ///< Algorithmic [B/s].
};

/// One kind of GPU. Efficiencies are parts of the peak that kernels reach, fitted to profiles.
struct GpuProfile {
  std::string name{};
  double flops = 0;                 ///< F: dense 16-bit peak [1/s].
  double bandwidth = 0;             ///< Bw: memory [B/s].
  std::int64_t memory = 0;          ///< [B]
  double compute_efficiency = 1;    ///< ec: matrix products.
  double memory_efficiency = 1;     ///< em: weights.
  double kv_efficiency = 1;         ///< ekv: keys and values in decode attention.
  double pointwise_efficiency = 1;  ///< eel: norms, activations, residuals.
  double linear_overhead = 0;       ///< o: per layer [s].
  double pointwise_overhead = 0;    ///< k0: per layer [s].
  double decode_overhead = 0;       ///< a: decode attention, per layer [s].
  double prefill_overhead = 0;      ///< Prefill attention, per chunk and layer [s].
  double prefill_self = 1;          ///< Part of F on the c^2/2 term of a chunk of c tokens.
  double prefill_cached = 1;        ///< Part of F on the c*p term behind p cached tokens.
  /// What a step of an engine in another process adds to one's own, in parts of its T_gpu: 1 under
  /// MPS, where GPU time adds up; more where the GPU changes between processes by time slices.
  double co_running = 1;
  double poll = 2e-6;  ///< A kernel that looks at one word, back to back with others [s].
  std::vector<AllReduce> all_reduce{};
};

/// What the engine around the kernels costs.
struct EngineProfile {
  double fixed = 0;             ///< c0: added to the GPU time of a step [s].
  double launch_per_layer = 0;  ///< l: issuing one layer's kernels without CUDA graphs [s].
  double cpu_fixed = 0;         ///< Scheduling between steps [s].
  double cpu_per_sequence = 0;  ///< And for each sequence of the batch [s].
};

/// A part of a prompt: `tokens` more behind `cached` that are in the cache already.
struct PrefillChunk {
  std::int64_t tokens = 0;
  std::int64_t cached = 0;
};

/// The work of one iteration.
struct StepWork {
  std::int64_t tokens = 0;          ///< n: through the linear layers: decodes and chunks.
  std::int64_t rows = 0;            ///< Through the head: sequences that get a token.
  std::int64_t context_tokens = 0;  ///< Read by decode attention, summed over sequences.
  std::span<const PrefillChunk> chunks{};
};

/// Where the GPU time of a step goes [s]; layers' parts are for all layers.
struct StepTime {
  double linear = 0;
  double pointwise = 0;
  double attention = 0;
  double all_reduce = 0;
  double head = 0;

  [[nodiscard]] double total() const { return linear + pointwise + attention + all_reduce + head; }
};

/// T_gpu of one iteration on `tp` GPUs (roofline with a p-norm, p = 1.5, between compute and
/// memory; fitted to Vidur's public profiles with 4.7 % to 5.8 % error):
///
///     t_c   = 2 n P / (tp F ec)      t_m = (2P/tp + 2n(4h + (2 nq hd + 2 nkv hd + 3f)/tp)) / (Bw
///     em) T_lin = (t_c^1.5 + t_m^1.5)^(2/3) + o T_el  = k0 + 2n(10h + (2(nq+nkv)hd + 3f)/tp) / (Bw
///     eel) T_att = [decode] a + contexts kv/(L tp)/(Bw ekv) + [chunk] 4 nq hd/tp (cp/e1 +
///     c^2/2/e2)/F T_ar  = 2 (alpha + 2nh/beta) if tp > 1 T_gpu = L (T_lin + T_el + T_att + T_ar) +
///     T_head
///
/// A tp that the profile has no all-reduce for takes the nearest greater one, else the greatest.
[[nodiscard]] StepTime gpu_time(const ModelShape& model,
                                const GpuProfile& gpu,
                                std::int64_t tp,
                                const StepWork& work);

/// StepTime::attention of gpu_time alone, which costs little [s].
[[nodiscard]] double attention_seconds(const ModelShape& model,
                                       const GpuProfile& gpu,
                                       std::int64_t tp,
                                       const StepWork& work);

/// What one more context token costs decode attention over all layers [s].
[[nodiscard]] double context_token_seconds(const ModelShape& model,
                                           const GpuProfile& gpu,
                                           std::int64_t tp);

/// T_step = max(T_gpu + c0, l L, T_gpu + neighbours) + cpu(B), with `neighbours` the T_gpu of the
/// other engines that are active on the same GPU, times GpuProfile::co_running: under MPS, GPU work
/// adds up and CPU work overlaps. (Without CUDA graphs small models are bound by launches, l L:
/// that is what the papers measured.) [s]
[[nodiscard]] double step_seconds(double gpu_seconds,
                                  const ModelShape& model,
                                  const EngineProfile& engine,
                                  std::int64_t batch,
                                  double neighbours = 0);

enum class Phase : std::uint8_t { kPrefill, kDecode };

/// How many times slower a phase runs with `percent` of the SMs than with all, 30 <= percent <= 100
/// (MuxServe's public cost table, median over models; linear between its columns). `batch` is the
/// number of sequences of a decode.
[[nodiscard]] double mps_slowdown(Phase phase, std::int64_t batch, std::int64_t percent);

/// Bytes that remain for KV on each of `tp` GPUs: usable * memory - weights/tp - activations; never
/// negative.
[[nodiscard]] std::int64_t kv_capacity(const ModelShape& model,
                                       const GpuProfile& gpu,
                                       std::int64_t tp,
                                       double usable,
                                       std::int64_t activation_bytes);

}  // namespace heddle::sim
