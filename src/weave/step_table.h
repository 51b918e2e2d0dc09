#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "ops/guest_attention.h"
#include "weave/job_area.h"

namespace heddle::weave {

/// Writes the tables of a step for the host. False where the area has no room for so many sequences
/// or blocks.
[[nodiscard]] bool write_step(JobArea& area,
                              std::uint32_t step,
                              std::span<const ops::GuestSequence> sequences);

/// The error of a hot side that breaks the rules: `field` is `value`, and what would be `right`.
[[nodiscard]] Error broken_rule(const std::string& field,
                                std::int64_t value,
                                const std::string& right);

/// A host's own copy of the tables of a step, which nobody changes once it was looked at.
class StepTable {
 public:
  /// Takes the copy. kInvalidArgument where there cannot be so many rows.
  Result<void> take(JobArea& area, std::uint32_t step, std::int64_t rows);
  /// Whether all that attention in the blocks of `place` would read is on pages of `lease`;
  /// kInvalidArgument, with what is wrong.
  [[nodiscard]] Result<void> check(const Geometry& geometry,
                                   const LayerPlace& place,
                                   const std::set<PageId>& lease) const;

  [[nodiscard]] bool empty() const { return numbers_.empty(); }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  /// Borders [rows of the geometry], then blocks [groups, rows, blocks], as in the area.
  [[nodiscard]] std::span<const std::int32_t> numbers() const { return numbers_; }
  /// Where the blocks of a group begin among them.
  [[nodiscard]] static std::int64_t blocks_at(const Geometry& geometry, std::int64_t group) {
    return geometry.rows + group * geometry.rows * geometry.blocks;
  }

 private:
  [[nodiscard]] Result<void> check_row(const Geometry& geometry,
                                       const LayerPlace& place,
                                       const std::set<PageId>& lease,
                                       std::int64_t row) const;

  std::int64_t rows_ = 0;
  std::vector<std::int32_t> numbers_{};
};

/// What a host computes of a layer: from the area's queries to its states, over blocks from `pages`
/// on. `begin` has 0 to `rows`, `numbers` is as StepTable's; both are where the kernels read them.
[[nodiscard]] ops::AttentionArgs attention_of(JobArea& area,
                                              const LayerPlace& layer,
                                              std::byte* pages,
                                              const std::int32_t* begin,
                                              const std::int32_t* numbers,
                                              std::int64_t rows);

}  // namespace heddle::weave
