#include "engine/expert_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace heddle::engine {

ExpertSlots::ExpertSlots(const spec::ModelSpec& model,
                         const store::ImageLayout& layout,
                         Memory memory)
    : per_layer_(model.experts.count),
      experts_(model.experts.count * model.layers),
      parts_(store::expert_parts(model, layout)),
      memory_(std::move(memory)),
      turns_(experts_, model.experts.slots),
      link_(memory_.bandwidth) {
  const auto slots = static_cast<std::uint64_t>(model.experts.slots);
  HEDDLE_CHECK(memory_.image.size() * memory_.page_bytes >= layout.bytes);
  HEDDLE_CHECK(memory_.slots.size() * memory_.page_bytes >= slots * parts_.slot_bytes);
}

ops::ExpertWeights ExpertSlots::bring(std::int64_t layer, std::int64_t expert) {
  const std::vector<store::ExpertPart>& parts = parts_.layers.at(static_cast<std::size_t>(layer));
  const std::int64_t number = layer * per_layer_ + expert;
  if (number <= last_) {  // A pass takes them in ascending order.
    turns_.begin_pass();
  }
  last_ = number;
  const policy::ExpertTurns::Turn turn = turns_.take(number);
  const std::uint64_t slot = static_cast<std::uint64_t>(turn.slot) * parts_.slot_bytes;
  if (turn.there) {
    ++counts_.hits;
  } else {
    fetch(parts, expert, slot);
    ++counts_.misses;
  }
  ops::ExpertWeights weights;
  for (const store::ExpertPart& part : parts) {
    const std::byte* const at = memory_.base + slot + part.place;
    switch (part.role) {
      case store::Role::kExpertsGateUp:
        (weights.gate_up == nullptr ? weights.gate_up : weights.up) = at;
        break;
      case store::Role::kExpertsGateUpScale:
        weights.gate_up_scale = at;
        break;
      case store::Role::kExpertsDownScale:
        weights.down_scale = at;
        break;
      default:
        weights.down = at;
    }
  }
  return weights;
}

/// Pages lie anywhere on both sides.
void ExpertSlots::fetch(const std::vector<store::ExpertPart>& parts,
                        std::int64_t expert,
                        std::uint64_t slot) {
  const std::uint64_t page = memory_.page_bytes;
  std::uint64_t fetched = 0;
  link_.begin();
  for (const store::ExpertPart& part : parts) {
    std::uint64_t from = part.offset + static_cast<std::uint64_t>(expert) * part.bytes;
    std::uint64_t to = slot + part.place;
    for (std::uint64_t left = part.bytes; left > 0;) {
      const std::uint64_t bytes = std::min({left, page - from % page, page - to % page});
      std::memcpy(
          memory_.slots[to / page] + to % page, memory_.image[from / page] + from % page, bytes);
      from += bytes;
      to += bytes;
      left -= bytes;
    }
    fetched += part.bytes;
  }
  counts_.fetched_bytes += fetched;
  link_.wait(fetched);
}

}  // namespace heddle::engine
