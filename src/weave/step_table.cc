#include "weave/step_table.h"

#include <algorithm>

namespace heddle::weave {

bool write_step(JobArea& area, std::uint32_t step, std::span<const ops::GuestSequence> sequences) {
  const Geometry& g = area.geometry();
  bool fits = std::ssize(sequences) <= g.rows;
  const std::span<std::int32_t> table = area.table(step);
  for (std::int64_t row = 0; fits && row < std::ssize(sequences); ++row) {
    const ops::GuestSequence& sequence = sequences[static_cast<std::size_t>(row)];
    table[static_cast<std::size_t>(row)] = sequence.border;
    for (std::int64_t group = 0; fits && group < std::ssize(sequence.blocks); ++group) {
      const auto& blocks = sequence.blocks[static_cast<std::size_t>(group)];
      fits = group < g.groups && std::ssize(blocks) <= g.blocks;
      if (fits) {
        const std::int64_t at = StepTable::blocks_at(g, group) + row * g.blocks;
        std::copy(blocks.begin(), blocks.end(), table.begin() + at);
      }
    }
  }
  return fits;
}

Error broken_rule(const std::string& field, std::int64_t value, const std::string& right) {
  return {Code::kInvalidArgument,
          "guests: " + field + " is " + std::to_string(value) + "; " + right};
}

Result<void> StepTable::take(JobArea& area, std::uint32_t step, std::int64_t rows) {
  const Geometry& g = area.geometry();
  if (rows < 1 || rows > g.rows) {
    return broken_rule("rows", rows, "from 1 to " + std::to_string(g.rows) + " it may be");
  }
  const std::span<const std::int32_t> table = area.table(step);
  numbers_.assign(table.begin(), table.end());
  rows_ = rows;
  return {};
}

Result<void> StepTable::check(const Geometry& g,
                              const LayerPlace& place,
                              const std::set<PageId>& lease) const {
  for (std::int64_t row = 0; row < rows_; ++row) {
    if (const auto checked = check_row(g, place, lease, row); !checked) {
      return checked;
    }
  }
  return {};
}

Result<void> StepTable::check_row(const Geometry& g,
                                  const LayerPlace& place,
                                  const std::set<PageId>& lease,
                                  std::int64_t row) const {
  const std::int64_t border = numbers_[static_cast<std::size_t>(row)];
  const std::string name = "row " + std::to_string(row);
  if (border < 0 || border % g.border != 0) {
    return broken_rule("the border of " + name,
                       border,
                       "a multiple of " + std::to_string(g.border) + " it has to be");
  }
  const std::int64_t count = (border + place.block_tokens - 1) / place.block_tokens;
  if (count > g.blocks) {
    return broken_rule("the border of " + name, border, "its blocks end before");
  }
  const std::int32_t* blocks = numbers_.data() + blocks_at(g, place.group) + row * g.blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = blocks[i] * place.block_bytes;
    const std::int64_t last = first + place.block_bytes - 1;
    if (blocks[i] < 0 || first / g.page_bytes != last / g.page_bytes ||
        !lease.contains(PageId(static_cast<std::uint64_t>(first / g.page_bytes)))) {
      return broken_rule("block " + std::to_string(i) + " of " + name, blocks[i], "it is not lent");
    }
  }
  return {};
}

ops::AttentionArgs attention_of(JobArea& area,
                                const LayerPlace& layer,
                                std::byte* pages,
                                const std::int32_t* begin,
                                const std::int32_t* numbers,
                                std::int64_t rows) {
  const Geometry& g = area.geometry();
  const auto heads = [&](float* data, std::int64_t width) {
    return ops::heads_of(ops::matrix_of(data, rows, g.heads * width), 0, g.heads, width);
  };
  const ops::ConstTensorRef border = ops::vector_of(numbers, rows);
  const std::int32_t* const blocks = numbers + StepTable::blocks_at(g, layer.group);
  return {.rows = {.begin = ops::vector_of(begin, rows + 1), .first_position = border},
          .query = heads(area.queries().data(), g.head_dim),
          .kv = {.base = pages,
                 .block_bytes = layer.block_bytes,
                 .block_tokens = layer.block_tokens,
                 .key_offset = layer.key_offset,
                 .value_offset = layer.value_offset,
                 .kv_heads = g.kv_heads,
                 .head_dim = g.head_dim,
                 .dtype = kv_dtype(g),
                 .table = ops::matrix_of(blocks, rows, g.blocks)},
          .scale = g.scale,
          .soft_cap = g.soft_cap,
          .parts = {.end = border, .left = heads(area.states().data(), g.head_dim + 2)}};
}

}  // namespace heddle::weave
