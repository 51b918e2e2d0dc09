#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/layer_range.h"
#include "engine/state_plan.h"
#include "memory/kv_geometry.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"

namespace heddle::engine {

/// Layers that share pages and block tables. They have equally many heads of one size, and attend
/// to equally many positions, so that a block which falls out of the window is free for all of them
/// at once.
struct KvGroupPlan {
  std::int64_t window = 0;             ///< 0: all positions.
  std::vector<std::int64_t> layers{};  ///< Of the model, ascending; none of a block of states.
  memory::KvGeometry geometry{};       ///< The i-th layer of a block is layers[i].
};

/// Where the KV of each layer of a range goes, or its state.
///
/// The states of a sequence (StatePlan) are in as many blocks whatever its length: each is a group
/// of its own behind those of keys and values, whose only block has positions for a whole context.
/// As a window of that length it stays where it is, and is no guest. Of a cached prefix a copy may
/// be kept (engine/kept_states.h).
struct KvPlan {
  struct Place {
    std::size_t group = 0;
    std::int64_t layer_in_group = 0;
  };

  LayerRange range{};
  spec::DType dtype = spec::DType::kBf16;  ///< Of keys and values.
  std::vector<KvGroupPlan> groups{};
  /// Of layer range.begin + i; of one with a state it says nothing. Those of an encoder's layers
  /// are the same: a text's keys and values are of no use once its layer is computed.
  std::vector<Place> places{};
  StatePlan states{};

  [[nodiscard]] const Place& place(std::int64_t layer) const {
    return places[static_cast<std::size_t>(layer - range.begin)];
  }
  /// How many groups have keys and values. The group behind them is that of block 0 of the states.
  [[nodiscard]] std::size_t kv_groups() const {
    return groups.size() - states.blocks_per_page.size();
  }
  /// The parts of a layer's state; none where it has keys and values.
  [[nodiscard]] const std::vector<StatePart>& state_parts(std::int64_t layer) const {
    return states.parts[static_cast<std::size_t>(layer - range.begin)];
  }
  /// Keys and values of a layer at one position [bytes].
  [[nodiscard]] std::size_t position_bytes(std::int64_t layer) const;
  /// Blocks of all groups with keys and values end at multiples of this, and so do cached prefixes.
  [[nodiscard]] std::int64_t aligned_tokens() const;
  /// Blocks that the state of a sequence has take so many bytes, and its keys and values so many a
  /// token.
  [[nodiscard]] std::int64_t state_bytes() const;
  [[nodiscard]] std::int64_t token_bytes() const;
};

/// Lays out the KV of a range of layers, as model.kv has it, with matrices of `weights` in pages of
/// `page_bytes`: groups by window, split further where a token of them needs too much
/// (memory::kv_groups). Blocks of all stages of a pipeline have equally many tokens, so that a
/// cached prefix ends alike on all of them. kInvalidArgument, naming the sizes, where a page is too
/// small.
Result<KvPlan> plan_kv(const spec::ModelSpec& model,
                       LayerRange range,
                       spec::DType weights,
                       std::size_t page_bytes);

}  // namespace heddle::engine
