#include "sim/step_model.h"

#include <algorithm>
#include <array>

namespace heddle::sim {
namespace {

std::int64_t picoseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * 1e12 + 0.5);
}

/// The entry of `memory` at `index`, computed the first time it is asked for.
template <class Compute>
std::int64_t recall(std::vector<std::int64_t>& memory, std::int64_t index, Compute compute) {
  const auto at = static_cast<std::size_t>(index);
  if (at >= memory.size()) {
    memory.resize(std::max(at + 1, memory.size() * 2), -1);
  }
  if (memory[at] < 0) {
    memory[at] = compute();
  }
  return memory[at];
}

}  // namespace

StepModel::StepModel(const ModelShape& model,
                     const GpuProfile& gpu,
                     std::int64_t tp,
                     const EngineProfile& engine)
    : model_(model), gpu_(gpu), tp_(tp), engine_(engine) {
  decode_ps_ = picoseconds(gpu.decode_overhead * static_cast<double>(model.layers));
  context_ps_ = std::max<std::int64_t>(1, picoseconds(context_token_seconds(model, gpu, tp)));
  launch_ps_ = picoseconds(engine.launch_per_layer * static_cast<double>(model.layers));
  fixed_ps_ = picoseconds(engine.fixed);
}

std::int64_t StepModel::base_ps(std::int64_t tokens, std::int64_t rows) const {
  const std::int64_t layers = recall(layers_ps_, tokens, [&] {
    const StepTime time = gpu_time(model_, gpu_, tp_, {.tokens = tokens});
    return picoseconds(time.linear + time.pointwise + time.all_reduce);
  });
  return layers + recall(head_ps_, rows, [&] {
           return picoseconds(gpu_time(model_, gpu_, tp_, {.tokens = 1, .rows = rows}).head);
         });
}

std::int64_t StepModel::chunk_ps(const PrefillChunk& chunk) const {
  const std::array chunks{chunk};
  return picoseconds(
      attention_seconds(model_, gpu_, tp_, {.tokens = chunk.tokens, .chunks = chunks}));
}

Duration StepModel::between_steps(std::int64_t batch) const {
  return from_seconds(engine_.cpu_fixed + engine_.cpu_per_sequence * static_cast<double>(batch));
}

policy::StepCost StepModel::step_cost(std::int64_t chunk_tokens) const {
  const std::int64_t one = base_ps(1, 1);
  const std::int64_t many = base_ps(chunk_tokens, 1);
  return {.fixed = Duration(std::max(launch_ps_, one + fixed_ps_) / 1000),
          .per_token = Duration((many - one) / std::max<std::int64_t>(1, chunk_tokens) / 1000),
          .per_context_token = Duration(context_ps_ / 1000)};
}

}  // namespace heddle::sim
