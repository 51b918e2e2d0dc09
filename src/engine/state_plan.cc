#include "engine/state_plan.h"

#include <algorithm>
#include <bit>
#include <string>

#include "ops/gated_delta.h"
#include "spec/operations.h"

namespace heddle::engine {

Result<StatePlan> plan_states(const spec::ModelSpec& model,
                              LayerRange range,
                              std::size_t page_bytes) {
  StatePlan plan{.parts =
                     std::vector<std::vector<StatePart>>(static_cast<std::size_t>(range.size()))};
  if (!spec::has_states(model)) {
    return plan;
  }
  const std::int64_t head_bytes = ops::DeltaHeadLayout(model.linear).bytes();
  const std::int64_t heads_of_page = static_cast<std::int64_t>(page_bytes) / head_bytes;
  if (heads_of_page == 0) {
    return Error{Code::kInvalidArgument,
                 "lay out states: that of one key head of linear attention needs " +
                     std::to_string(head_bytes) + " bytes and a page has " +
                     std::to_string(page_bytes) + "; use larger pages"};
  }
  plan.head_bytes = head_bytes;
  std::int64_t used = heads_of_page;  // Heads of the last block.
  for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
    for (std::int64_t left = spec::keeps_state(model, layer) ? model.linear.key_heads : 0;
         left > 0;) {
      if (used == heads_of_page) {
        plan.blocks_per_page.push_back(1);
        used = 0;
      }
      const std::int64_t heads = std::min(left, heads_of_page - used);
      plan.parts[static_cast<std::size_t>(layer - range.begin)].push_back(
          {.block = plan.blocks_per_page.size() - 1, .heads = heads, .offset = used * head_bytes});
      used += heads;
      left -= heads;
    }
  }
  if (!plan.blocks_per_page.empty()) {
    // The last one may be small enough for several on a page.
    plan.blocks_per_page.back() = static_cast<std::uint32_t>(
        std::bit_floor(page_bytes / static_cast<std::size_t>(used * head_bytes)));
  }
  return plan;
}

}  // namespace heddle::engine
