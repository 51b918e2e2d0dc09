#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_spec.h"
#include "store/image_layout.h"

namespace heddle::store {

/// What the experts of a layer have of one tensor of the image: of each equally many bytes, one
/// after the other.
struct ExpertPart {
  Role role = Role::kExpertsGateUp;
  std::uint64_t offset = 0;  ///< Of the first expert's, in the image.
  std::uint64_t bytes = 0;   ///< Of each.
  std::uint64_t place = 0;   ///< Among the parts of an expert that lie together, in a slot.
};

/// How experts lie in slots: those that take turns in a device's memory.
struct ExpertParts {
  /// By layer: matrices and their scales in the order of the image. Where gates and ups are apart
  /// kExpertsGateUp is there twice, gates first.
  std::vector<std::vector<ExpertPart>> layers{};
  std::uint64_t slot_bytes = 0;  ///< Enough for an expert of any layer.
};

/// Of a model with experts.
[[nodiscard]] ExpertParts expert_parts(const spec::ModelSpec& model, const ImageLayout& layout);

/// Pages that a device has of an image whose experts take turns (spec::Experts::slots): those of
/// ImageLayout::resident_bytes, and behind them those of all slots, one after the other.
struct PartPages {
  std::int64_t resident = 0;
  std::int64_t slots = 0;
};
[[nodiscard]] PartPages part_pages(const spec::ModelSpec& model,
                                   const ImageLayout& layout,
                                   std::uint64_t page_bytes);

}  // namespace heddle::store
