#include "sim/perf_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/exact_math.h"
#include "spec/memory_needs.h"
#include "spec/model_spec.h"
#include "spec/operations.h"

namespace heddle::sim {
namespace {

constexpr double kBytesPerWeight = 2;

double real(std::int64_t value) {
  return static_cast<double>(value);
}

/// The quotient of two positive numbers, rounded.
std::int64_t nearest(std::int64_t sum, std::int64_t count) {
  return (sum + count / 2) / count;
}

/// (a^1.5 + b^1.5)^(2/3): more than the larger, less than the sum.
double soft_maximum(double a, double b) {
  return exact::pow(a * std::sqrt(a) + b * std::sqrt(b), 2.0 / 3.0);
}

/// One all-reduce of `bytes`.
double all_reduce_seconds(const GpuProfile& gpu, std::int64_t tp, double bytes) {
  HEDDLE_CHECK(!gpu.all_reduce.empty());
  const AllReduce* best = nullptr;
  for (const AllReduce& entry : gpu.all_reduce) {
    const bool better = best == nullptr || (best->tp < tp ? entry.tp > best->tp
                                                          : entry.tp >= tp && entry.tp < best->tp);
    best = better ? &entry : best;
  }
  return best->latency + bytes / best->bandwidth;
}

struct MpsRow {
  std::int64_t batch_most;
  std::array<double, 8> slowdown;  ///< At 30, 40, ... 100 percent.
};

constexpr std::int64_t kMpsLeast = 30;
constexpr std::int64_t kMpsStep = 10;
constexpr std::array<double, 8> kMpsPrefill{2.37, 1.88, 1.55, 1.35, 1.24, 1.13, 1.06, 1.0};
constexpr std::array<MpsRow, 3> kMpsDecode{{
    {16, {1.07, 1.04, 1.02, 1.01, 1.01, 1.00, 1.00, 1.0}},
    {64, {1.24, 1.14, 1.07, 1.04, 1.03, 1.01, 1.01, 1.0}},
    {INT64_MAX, {1.86, 1.60, 1.35, 1.21, 1.15, 1.09, 1.04, 1.0}},
}};

const std::array<double, 8>& mps_row(Phase phase, std::int64_t batch) {
  if (phase == Phase::kPrefill) {
    return kMpsPrefill;
  }
  const auto* row = std::find_if(kMpsDecode.begin(), kMpsDecode.end(), [batch](const MpsRow& each) {
    return batch <= each.batch_most;
  });
  return row->slowdown;
}

}  // namespace

ModelShape shape_of(const spec::ModelSpec& model) {
  ModelShape shape{
      .hidden = model.hidden,
      .intermediate = model.intermediate + model.experts.active * model.experts.intermediate,
      .layers = model.layers,
      .heads = model.heads,
      .kv_heads = model.kv_heads,
      .head_dim = model.head_dim,
      .vocab = model.vocab,
      .tied_embeddings = model.tied_embeddings,
      .kv_row_bytes = static_cast<std::int64_t>(
          spec::kv_row_bytes(spec::kv_dtype(model.kv, spec::DType::kBf16), model.head_dim))};
  if (model.global_head_dim > 0) {
    std::int64_t dims = 0;
    std::int64_t keys = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      const spec::Heads heads = spec::heads_of(model, layer);
      dims += heads.dim;
      keys += heads.keys();
    }
    shape.head_dim = nearest(dims, model.layers);
    shape.kv_heads = std::max<std::int64_t>(nearest(keys, model.layers * shape.head_dim), 1);
    shape.kv_row_bytes =
        nearest(static_cast<std::int64_t>(spec::kv_bytes_per_token(model, spec::DType::kBf16)),
                2 * model.layers * shape.kv_heads);
  }
  return shape;
}

std::int64_t linear_parameters(const ModelShape& model) {
  return model.hidden * (model.heads + 2 * model.kv_heads) * model.head_dim +
         model.heads * model.head_dim * model.hidden + 3 * model.hidden * model.intermediate;
}

std::int64_t parameters(const ModelShape& model) {
  return model.layers * linear_parameters(model) +
         (model.tied_embeddings ? 1 : 2) * model.vocab * model.hidden;
}

std::int64_t weight_bytes(const ModelShape& model) {
  return 2 * parameters(model);
}

std::int64_t kv_bytes_per_token(const ModelShape& model) {
  const std::int64_t row = model.kv_row_bytes > 0 ? model.kv_row_bytes : 2 * model.head_dim;
  return 2 * model.layers * model.kv_heads * row;
}

double attention_seconds(const ModelShape& model,
                         const GpuProfile& gpu,
                         std::int64_t tp,
                         const StepWork& work) {
  const double ranks = real(tp);
  const double q = real(model.heads * model.head_dim);
  double attention = 0;
  if (work.context_tokens > 0) {
    attention += gpu.decode_overhead + real(work.context_tokens) *
                                           context_token_seconds(model, gpu, tp) /
                                           real(model.layers);
  }
  for (const PrefillChunk& chunk : work.chunks) {
    const double tokens = real(chunk.tokens);
    attention += gpu.prefill_overhead + 4 * q / ranks *
                                            (tokens * real(chunk.cached) / gpu.prefill_cached +
                                             tokens * tokens / 2 / gpu.prefill_self) /
                                            gpu.flops;
  }
  return real(model.layers) * attention;
}

StepTime gpu_time(const ModelShape& model,
                  const GpuProfile& gpu,
                  std::int64_t tp,
                  const StepWork& work) {
  HEDDLE_CHECK(tp >= 1 && work.tokens >= 1);
  const double n = real(work.tokens);
  const double ranks = real(tp);
  const double hidden = real(model.hidden);
  const double q = real(model.heads * model.head_dim);
  const double kv = real(model.kv_heads * model.head_dim);
  const double ffn = real(model.intermediate);
  const double weights = real(linear_parameters(model)) / ranks;

  const double compute = 2 * n * weights / (gpu.flops * gpu.compute_efficiency);
  const double memory =
      (kBytesPerWeight * weights + 2 * n * (4 * hidden + (2 * q + 2 * kv + 3 * ffn) / ranks)) /
      (gpu.bandwidth * gpu.memory_efficiency);
  const double linear = soft_maximum(compute, memory) + gpu.linear_overhead;
  const double pointwise =
      gpu.pointwise_overhead + 2 * n * (10 * hidden + (2 * (q + kv) + 3 * ffn) / ranks) /
                                   (gpu.bandwidth * gpu.pointwise_efficiency);
  const double exchange = tp > 1 ? 2 * all_reduce_seconds(gpu, tp, 2 * n * hidden) : 0;
  const double head = soft_maximum(
      2 * real(work.rows) * real(model.vocab) * hidden / ranks /
          (gpu.flops * gpu.compute_efficiency),
      2 * real(model.vocab) * hidden / ranks / (gpu.bandwidth * gpu.memory_efficiency));
  const double layers = real(model.layers);
  return StepTime{.linear = layers * linear,
                  .pointwise = layers * pointwise,
                  .attention = attention_seconds(model, gpu, tp, work),
                  .all_reduce = layers * exchange,
                  .head = head};
}

double context_token_seconds(const ModelShape& model, const GpuProfile& gpu, std::int64_t tp) {
  return real(kv_bytes_per_token(model)) / real(tp) / (gpu.bandwidth * gpu.kv_efficiency);
}

double step_seconds(double gpu_seconds,
                    const ModelShape& model,
                    const EngineProfile& engine,
                    std::int64_t batch,
                    double neighbours) {
  const double launches = engine.launch_per_layer * real(model.layers);
  const double cpu = engine.cpu_fixed + engine.cpu_per_sequence * real(batch);
  return std::max({gpu_seconds + engine.fixed, launches, gpu_seconds + neighbours}) + cpu;
}

double mps_slowdown(Phase phase, std::int64_t batch, std::int64_t percent) {
  HEDDLE_CHECK(percent >= kMpsLeast && percent <= 100);
  const std::array<double, 8>& row = mps_row(phase, batch);
  const auto column = static_cast<std::size_t>((percent - kMpsLeast) / kMpsStep);
  const double rest = real((percent - kMpsLeast) % kMpsStep) / real(kMpsStep);
  return rest == 0 ? row.at(column) : row.at(column) * (1 - rest) + row.at(column + 1) * rest;
}

std::int64_t kv_capacity(const ModelShape& model,
                         const GpuProfile& gpu,
                         std::int64_t tp,
                         double usable,
                         std::int64_t activation_bytes) {
  const auto granted = static_cast<std::int64_t>(usable * real(gpu.memory));
  return std::max<std::int64_t>(0, granted - weight_bytes(model) / tp - activation_bytes);
}

}  // namespace heddle::sim
