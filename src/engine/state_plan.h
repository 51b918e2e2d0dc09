#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/layer_range.h"
#include "spec/model_spec.h"

namespace heddle::engine {

/// Consecutive key heads of a layer of linear attention whose states are together in a block.
struct StatePart {
  std::size_t block = 0;    ///< Of those of a sequence.
  std::int64_t heads = 0;   ///< How many.
  std::int64_t offset = 0;  ///< Bytes from the start of the block.
};

/// How the state of a sequence lies in blocks: the key heads of all layers one behind the other,
/// each whole (ops::DeltaHeadLayout), as many to a block as a page has room for.
struct StatePlan {
  std::vector<std::uint32_t> blocks_per_page{};  ///< By block; a power of two.
  std::vector<std::vector<StatePart>> parts{};   ///< Of layer range.begin + i; of attention none.
  std::int64_t head_bytes = 0;                   ///< Of a key head.
};

/// Lays out the states of a range of layers in pages of `page_bytes`, a power of two: no blocks
/// where no layer has any. kInvalidArgument, naming the sizes, where a page does not hold a head.
Result<StatePlan> plan_states(const spec::ModelSpec& model,
                              LayerRange range,
                              std::size_t page_bytes);

}  // namespace heddle::engine
