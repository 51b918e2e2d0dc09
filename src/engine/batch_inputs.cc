#include "engine/batch_inputs.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "engine/rope_frequencies.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// Blocks of the narrowest table of steps that come again: so that most texts grow to their end
/// within it, as each width is another CUDA graph.
constexpr std::size_t kRecurringWidth = 32;

std::int32_t narrow(std::int64_t value) {
  HEDDLE_CHECK(value >= 0 && value <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(value);
}

}  // namespace

void BatchInputs::gather(std::span<const BatchSlice> slices,
                         const Decoder& decoder,
                         const ModelKv& kv,
                         Mirror& mirror,
                         bool recurring) {
  gather_rows(slices, decoder, mirror);
  tables_.clear();
  for (std::size_t group = 0; group < kv.plan().groups.size(); ++group) {
    gather_table(slices, group, kv, mirror, recurring);
  }
  gather_copies(slices, kv, mirror);
  gather_guests(slices, kv, mirror);
}

void BatchInputs::gather_copies(std::span<const BatchSlice> slices,
                                const ModelKv& kv,
                                Mirror& mirror) {
  std::size_t most = 0;
  for (const BatchSlice& slice : slices) {
    most = std::max(most, slice.kv->states().copies.size());
  }
  copies_ = static_cast<std::int64_t>(most);
  copy_tables_.clear();
  if (most == 0) {
    return;
  }
  const std::size_t states = kv.plan().groups.size() - kv.plan().kv_groups();
  std::vector<std::int32_t> behind(slices.size() * most);
  std::vector<std::vector<std::int32_t>> tables(states,
                                                std::vector<std::int32_t>(behind.size(), -1));
  for (std::size_t s = 0; s < slices.size(); ++s) {
    std::size_t at = s * most;
    for (const StateCopy& copy : slices[s].kv->states().copies) {
      behind[at] = narrow(copy.length - slices[s].first_position);
      for (std::size_t i = 0; i < states; ++i) {
        tables[i][at] = kv.block_number(kv.plan().kv_groups() + i, copy.blocks[i]);
      }
      ++at;
    }
  }
  copy_behind_ = mirror.add(behind);
  for (const std::vector<std::int32_t>& table : tables) {
    copy_tables_.push_back(mirror.add(table));
  }
}

void BatchInputs::gather_guests(std::span<const BatchSlice> slices,
                                const ModelKv& kv,
                                Mirror& mirror) {
  std::vector<std::int32_t> border;
  for (const BatchSlice& slice : slices) {
    const std::int64_t tokens = kv.guest_tokens(*slice.kv);
    HEDDLE_CHECK(tokens > 0 ? slice.ids.size() == 1 : border.empty());
    if (tokens > 0) {
      border.push_back(narrow(tokens));
    }
  }
  guests_ = std::ssize(border);
  guest_tables_.clear();
  if (border.empty()) {
    return;
  }
  border_ = mirror.add(border);
  const std::span<const BatchSlice> away = slices.last(border.size());
  for (std::size_t group = 0; group < kv.plan().groups.size(); ++group) {
    std::size_t width = 1;
    for (const BatchSlice& slice : away) {
      width = std::max(width, slice.kv->groups()[group].guests.size());
    }
    std::vector<std::int32_t> table(away.size() * width, -1);
    for (std::size_t s = 0; s < away.size(); ++s) {
      const SequenceKv::Group& own = away[s].kv->groups()[group];
      for (std::size_t i = 0; i < own.guests.size(); ++i) {
        table[s * width + i] = kv.block_number(group, own.guests[i]);
      }
    }
    guest_tables_.push_back(
        {.offset = mirror.add(table), .width = static_cast<std::int64_t>(width)});
  }
}

void BatchInputs::gather_rows(std::span<const BatchSlice> slices,
                              const Decoder& decoder,
                              Mirror& mirror) {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> begin{0};
  std::vector<std::int32_t> first_position;
  for (const BatchSlice& slice : slices) {
    HEDDLE_CHECK(!slice.ids.empty());
    ids.insert(ids.end(), slice.ids.begin(), slice.ids.end());
    begin.push_back(narrow(static_cast<std::int64_t>(ids.size())));
    first_position.push_back(narrow(slice.first_position));
  }
  resumes_ =
      std::ranges::any_of(slices, [](const BatchSlice& slice) { return slice.first_position > 0; });
  tokens_ = static_cast<std::int64_t>(ids.size());
  sequences_ = static_cast<std::int64_t>(slices.size());
  ids_ = mirror.add(ids);
  begin_ = mirror.add(begin);
  first_position_ = mirror.add(first_position);
  gather_places(slices, decoder, mirror);
  gather_rotations(slices, decoder, mirror);
}

/// Of encoders, which rows of the tables of positions and types each token adds.
void BatchInputs::gather_places(std::span<const BatchSlice> slices,
                                const Decoder& decoder,
                                Mirror& mirror) {
  positions_ = std::nullopt;
  const spec::Encoder& encoder = decoder.model().encoder;
  if (encoder.positions == 0) {
    return;
  }
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> types;
  for (const BatchSlice& slice : slices) {
    for (std::int64_t i = 0; i < std::ssize(slice.ids); ++i) {
      const std::int64_t position = slice.first_position + i;
      positions.push_back(narrow(encoder.first_position + position));
      const bool second = slice.second_text > 0 && position >= slice.second_text;
      types.push_back(second && encoder.types > 1 ? 1 : 0);
    }
  }
  positions_ = mirror.add(positions);
  types_ = mirror.add(types);
}

void BatchInputs::gather_rotations(std::span<const BatchSlice> slices,
                                   const Decoder& decoder,
                                   Mirror& mirror) {
  for (std::size_t kind = 0; kind < kLayerRopes; ++kind) {
    RopeTable* const table = decoder.rope(static_cast<spec::LayerRope>(kind));
    cos_sin_[kind] = std::nullopt;
    rotary_dims_[kind] = 0;
    if (table == nullptr) {
      continue;
    }
    rotary_dims_[kind] = 2 * std::ssize(table->frequencies().radians);
    std::vector<float> cos_sin;
    for (const BatchSlice& slice : slices) {
      for (std::size_t i = 0; i < slice.ids.size(); ++i) {
        const auto row = table->row(slice.first_position + static_cast<std::int64_t>(i));
        cos_sin.insert(cos_sin.end(), row.begin(), row.end());
      }
    }
    cos_sin_[kind] = mirror.add(cos_sin);
  }
}

void BatchInputs::gather_table(std::span<const BatchSlice> slices,
                               std::size_t group,
                               const ModelKv& kv,
                               Mirror& mirror,
                               bool recurring) {
  std::size_t width = 0;
  for (const BatchSlice& slice : slices) {
    width = std::max(width, slice.kv->groups()[group].blocks.size());
  }
  width = recurring ? std::bit_ceil(std::max(width, kRecurringWidth)) : width;
  std::vector<std::int32_t> table(slices.size() * width, -1);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const SequenceKv::Group& own = slices[s].kv->groups()[group];
    for (std::size_t i = own.first_live; i < own.blocks.size(); ++i) {
      table[s * width + i] = kv.block_number(group, own.blocks[i]);
    }
  }
  tables_.push_back({.offset = mirror.add(table), .width = static_cast<std::int64_t>(width)});
}

void BatchInputs::describe(GraphKey& key) const {
  for (const std::int64_t size : {tokens_, sequences_}) {
    key.push_back(static_cast<std::uint64_t>(size));
  }
  for (const std::int64_t width : rotary_dims_) {
    key.push_back(static_cast<std::uint64_t>(width));
  }
  key.insert(key.end(), {ids_, begin_, first_position_});
  for (const std::optional<std::size_t>& rotations : cos_sin_) {
    key.push_back(rotations.value_or(0));
  }
  for (const Table& table : tables_) {
    key.insert(key.end(), {table.offset, static_cast<std::uint64_t>(table.width)});
  }
}

Batch BatchInputs::batch(const Mirror& mirror) const {
  Batch batch{.tokens = tokens_,
              .rows = {.begin = ops::vector_of(mirror.device<std::int32_t>(begin_), sequences_ + 1),
                       .first_position = ops::vector_of(
                           mirror.device<std::int32_t>(first_position_), sequences_)},
              .positions = {},
              .types = {},
              .resumes = resumes_,
              .cos_sin = {},
              .block_tables = {},
              .copies = {}};
  if (positions_) {
    batch.positions = ops::vector_of(mirror.device<std::int32_t>(*positions_), tokens_);
    batch.types = ops::vector_of(mirror.device<std::int32_t>(types_), tokens_);
  }
  for (std::size_t kind = 0; kind < kLayerRopes; ++kind) {
    if (cos_sin_[kind]) {
      batch.cos_sin[kind] =
          ops::matrix_of(mirror.device<float>(*cos_sin_[kind]), tokens_, rotary_dims_[kind]);
    }
  }
  for (const Table& table : tables_) {
    batch.block_tables.push_back(
        ops::matrix_of(mirror.device<std::int32_t>(table.offset), sequences_, table.width));
  }
  if (copies_ > 0) {
    batch.copy_behind =
        ops::matrix_of(mirror.device<std::int32_t>(copy_behind_), sequences_, copies_);
  }
  for (const std::size_t table : copy_tables_) {
    batch.copies.push_back(ops::matrix_of(mirror.device<std::int32_t>(table), sequences_, copies_));
  }
  batch.guests.sequences = guests_;
  if (guests_ > 0) {
    batch.guests.border = ops::vector_of(mirror.device<std::int32_t>(border_), guests_);
  }
  for (const Table& table : guest_tables_) {
    batch.guests.block_tables.push_back(
        ops::matrix_of(mirror.device<std::int32_t>(table.offset), guests_, table.width));
  }
  return batch;
}

ops::ConstTensorRef BatchInputs::ids(const Mirror& mirror) const {
  return ops::vector_of(mirror.device<std::int32_t>(ids_), tokens_);
}

}  // namespace heddle::engine
