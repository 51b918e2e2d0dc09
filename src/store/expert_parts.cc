#include "store/expert_parts.h"

#include <algorithm>

#include "base/check.h"
#include "store/image_loader.h"

namespace heddle::store {
namespace {

constexpr std::uint64_t kPartAlignment = 64;  // A cache line, and the widest vector load.

bool is_expert_part(Role role) {
  return role == Role::kExpertsGateUp || role == Role::kExpertsGateUpScale ||
         role == Role::kExpertsDown || role == Role::kExpertsDownScale;
}

}  // namespace

ExpertParts expert_parts(const spec::ModelSpec& model, const ImageLayout& layout) {
  HEDDLE_CHECK(model.experts.count > 0);
  ExpertParts parts;
  parts.layers.resize(static_cast<std::size_t>(model.layers));
  const auto count = static_cast<std::uint64_t>(model.experts.count);
  for (const ImageTensor& tensor : layout.tensors) {
    if (!is_expert_part(tensor.role)) {
      continue;
    }
    std::vector<ExpertPart>& layer = parts.layers[static_cast<std::size_t>(tensor.layer)];
    const std::uint64_t end = layer.empty() ? 0 : layer.back().place + layer.back().bytes;
    layer.push_back({.role = tensor.role,
                     .offset = tensor.offset,
                     .bytes = tensor.bytes / count,
                     .place = (end + kPartAlignment - 1) / kPartAlignment * kPartAlignment});
    const std::uint64_t whole = layer.back().place + layer.back().bytes;
    parts.slot_bytes =
        std::max(parts.slot_bytes, (whole + kPartAlignment - 1) / kPartAlignment * kPartAlignment);
  }
  return parts;
}

PartPages part_pages(const spec::ModelSpec& model,
                     const ImageLayout& layout,
                     std::uint64_t page_bytes) {
  const std::uint64_t slots =
      static_cast<std::uint64_t>(model.experts.slots) * expert_parts(model, layout).slot_bytes;
  return {.resident = static_cast<std::int64_t>(pages_for(layout.resident_bytes, page_bytes)),
          .slots = static_cast<std::int64_t>(pages_for(slots, page_bytes))};
}

}  // namespace heddle::store
