#include "engine/workspace.h"

#include <algorithm>

#include "base/tunables.h"
#include "ops/add_low_rank.h"
#include "ops/experts.h"
#include "ops/gated_delta.h"
#include "ops/linear.h"
#include "ops/low_rank_tiles.h"
#include "spec/block_panels.h"
#include "spec/operations.h"
#include "spec/pipe_stage.h"

namespace heddle::engine {
namespace {

constexpr std::size_t kAlignment = 256;

/// On GPUs: what attention puts its parts in, of so many for each token, and cuBLASLt its sums; at
/// most so much. A batch of few tokens has more parts, and needs them: it is those that leave a GPU
/// idle.
std::int64_t attention_parts() {
  return tuned(Tuned::kAttentionParts);
}
std::size_t parts_bytes_max() {
  return static_cast<std::size_t>(tuned(Tuned::kPartsMib)) << 20U;
}

/// CUDA graphs that a model has enough with, and what is recorded of a step: for each layer at
/// most, and once.
constexpr std::uint64_t kGraphs = 32;
constexpr std::uint64_t kOperationsOfLayer = 14;
constexpr std::uint64_t kOperationsOnce = 10;
/// Of shards beside.
constexpr std::uint64_t kExchangesOfLayer = 2;
constexpr std::uint64_t kExchangesOnce = 2;
/// Of a layer with experts, further ones.
constexpr std::uint64_t kOperationsOfExperts = 10;
/// Of a layer that adapters change: two for each of its products, and gates by themselves.
constexpr std::uint64_t kOperationsOfAdapters = 9;

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Of the heads that layers have, the widest.
spec::Heads widest_heads(const spec::ModelSpec& model) {
  return std::ranges::max(spec::kinds_of_heads(model), {}, &spec::Heads::dim);
}

/// Rows of the widest projection into queries, keys and values.
std::int64_t most_qkv(const spec::ModelSpec& model) {
  std::int64_t most = 0;
  for (const spec::Heads& heads : spec::kinds_of_heads(model)) {
    most = std::max(most, heads.qkv());
  }
  return most;
}

/// What adapters need for a token beside its packed inputs.
std::size_t adapter_bytes(const spec::ModelSpec& model) {
  constexpr std::int64_t kPairs = 3;  // Of queries, keys and values.
  return model.adapter_rank == 0
             ? 0
             : static_cast<std::size_t>(ops::low_rank_bytes(model.adapter_rank, kPairs));
}

/// The inputs of a product as kernels want them: whole tiles of tokens, inputs padded, and a scale
/// by token. On CPUs bfloat16 may be widened, and a line follows each token; on GPUs float32 stays
/// as it is.
std::size_t packed_bytes(device::Kind kind,
                         const spec::ModelSpec& model,
                         spec::DType weights,
                         std::int64_t tokens) {
  constexpr std::size_t kTile = 16;
  constexpr std::size_t kPad = 128;
  constexpr std::size_t kLine = 64;
  const std::int64_t widest = std::max({model.hidden,
                                        widest_heads(model).queries(),
                                        model.linear.values(),
                                        model.intermediate,
                                        model.experts.intermediate});
  const std::size_t inputs = round_up(static_cast<std::size_t>(widest), kPad);
  const std::size_t padded = round_up(static_cast<std::size_t>(tokens), kTile);
  if (kind != device::Kind::kCuda) {
    // Adapters of such a model are in bfloat16.
    const bool narrow = weights == spec::DType::kI8 && model.adapter_rank == 0;
    const std::size_t bytes = narrow ? 2 : sizeof(float);
    return padded * (inputs * bytes + kLine + sizeof(float) + adapter_bytes(model));
  }
  if (spec::compute_dtype(weights) != spec::DType::kBf16) {
    return 0;
  }
  return padded * (inputs * spec::dtype_bytes(spec::DType::kBf16) + sizeof(float));
}

/// On GPUs: weights in blocks that products of many tokens unpack; of FP8 on both sides plain rows,
/// and what the library gives of them.
std::size_t unpacked_bytes(const spec::ModelSpec& model, spec::DType weights, std::int64_t tokens) {
  if (weights != spec::DType::kStored || tokens <= ops::unpacked_tokens()) {
    return 0;
  }
  const std::int64_t widest = std::max({most_qkv(model),
                                        2 * model.intermediate,
                                        model.linear.channels() + model.linear.values(),
                                        model.hidden});
  const std::int64_t deepest =
      std::max({model.hidden, widest_heads(model).queries(), model.intermediate});
  const bool both = std::ranges::find(model.formats, spec::DType::kF8Both) != model.formats.end();
  // Whole panels of outputs, each with its scale.
  const std::size_t rows = round_up(static_cast<std::size_t>(widest), spec::kPanelRows);
  const std::size_t results =
      both ? rows * static_cast<std::size_t>(tokens + 1) * sizeof(float) + ops::kF8Padding : 0;
  return std::min(ops::kUnpackedBytes, static_cast<std::size_t>(widest * deepest * 2) + results);
}

/// Whether gates and ups of some layer's experts are two matrices.
bool experts_apart(const spec::ModelSpec& model, spec::DType weights) {
  const auto type_of = [&](spec::Matrix matrix, std::int64_t layer) {
    return spec::matrix_dtype(model, weights, matrix, layer, model.hidden);
  };
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (type_of(spec::Matrix::kExpertsGate, layer) != type_of(spec::Matrix::kExpertsUp, layer)) {
      return true;
    }
  }
  return false;
}

/// On GPUs: what experts() works in.
std::size_t experts_bytes(const spec::ModelSpec& model, spec::DType weights, std::int64_t tokens) {
  const spec::Experts& experts = model.experts;
  return experts.count == 0 ? 0
                            : ops::expert_scratch_bytes(tokens,
                                                        experts.active,
                                                        experts.count,
                                                        model.hidden,
                                                        experts.intermediate,
                                                        experts_apart(model, weights));
}

/// On GPUs: what layers of linear attention work in.
std::size_t delta_bytes(const spec::ModelSpec& model, std::int64_t tokens) {
  return spec::has_states(model) ? ops::delta_scratch_bytes(tokens, model.linear) : 0;
}

/// On GPUs: what adapters' first matrices give.
std::size_t adapter_scratch_bytes(const spec::ModelSpec& model,
                                  spec::DType weights,
                                  std::int64_t tokens) {
  return model.adapter_rank == 0
             ? 0
             : ops::low_rank_tiles_bytes(tokens, model.adapter_rank, spec::compute_dtype(weights));
}

std::size_t scratch_bytes(device::Kind kind,
                          const spec::ModelSpec& model,
                          spec::DType weights,
                          std::int64_t tokens) {
  const std::size_t packed = packed_bytes(kind, model, weights, tokens);
  if (kind != device::Kind::kCuda) {
    return round_up(packed, kAlignment);
  }
  const auto parts = static_cast<std::size_t>(attention_parts() * tokens * model.heads *
                                              (widest_heads(model).dim + 2)) *
                     sizeof(float);
  const std::size_t products =
      std::max(packed, std::min(parts, parts_bytes_max())) + unpacked_bytes(model, weights, tokens);
  return round_up(std::max({products,
                            experts_bytes(model, weights, tokens),
                            delta_bytes(model, tokens),
                            adapter_scratch_bytes(model, weights, tokens)}),
                  kAlignment);
}

}  // namespace

Workspace place_workspace(device::Kind kind,
                          const spec::ModelSpec& model,
                          spec::DType weights,
                          std::int64_t tokens,
                          std::byte* memory) {
  return {.activations = place_activations(model, weights, tokens, memory),
          .scratch = memory + round_up(activation_bytes(model, weights, tokens), kAlignment),
          .scratch_bytes = scratch_bytes(kind, model, weights, tokens)};
}

std::uint64_t workspace_bytes(device::Kind kind,
                              const spec::ModelSpec& model,
                              spec::DType weights,
                              std::int64_t tokens) {
  return round_up(activation_bytes(model, weights, tokens), kAlignment) +
         scratch_bytes(kind, model, weights, tokens);
}

std::uint64_t graph_bytes(const spec::ModelSpec& model) {
  const bool shard = model.shard.ranks > 1;
  const std::uint64_t of_layer = kOperationsOfLayer + (shard ? kExchangesOfLayer : 0) +
                                 (model.experts.count > 0 ? kOperationsOfExperts : 0) +
                                 (model.adapter_rank > 0 ? kOperationsOfAdapters : 0);
  const std::uint64_t operations = of_layer * static_cast<std::uint64_t>(model.layers) +
                                   kOperationsOnce + (shard ? kExchangesOnce : 0);
  return spec::stages_of(model) > 1 ? 0 : kGraphs * operations * device::kRecordedBytes;
}

}  // namespace heddle::engine
