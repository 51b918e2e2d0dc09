#include "engine/model_kv.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace heddle::engine {

ModelKv::ModelKv(memory::PagePool& pool, memory::OwnerId owner, KvPlan plan)
    : plan_(std::move(plan)) {
  for (const KvGroupPlan& group : plan_.groups) {
    caches_.emplace_back(pool, owner, group.geometry);
  }
}

SequenceKv ModelKv::make_sequence() const {
  SequenceKv sequence;
  sequence.groups_.resize(plan_.groups.size());
  return sequence;
}

Result<void> ModelKv::grow(SequenceKv& sequence, std::int64_t tokens) {
  std::vector<std::size_t> before(caches_.size());
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    before[g] = sequence.groups_[g].blocks.size();
    const auto grown = grow_group(sequence, g, tokens);
    if (grown) {
      continue;
    }
    for (std::size_t i = 0; i <= g; ++i) {
      drop_back(sequence, i, before[i]);
    }
    return grown.error();
  }
  return {};
}

Result<void> ModelKv::grow_group(SequenceKv& sequence, std::size_t group, std::int64_t tokens) {
  auto& blocks = sequence.groups_[group].blocks;
  const auto wanted = static_cast<std::size_t>(plan_.groups[group].geometry.blocks_for(tokens));
  while (blocks.size() < wanted) {
    const auto block = caches_[group].allocate();
    if (!block) {
      return block.error();
    }
    blocks.push_back(*block);
  }
  return {};
}

void ModelKv::shrink(SequenceKv& sequence, std::int64_t tokens) {
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    drop_back(sequence, g, static_cast<std::size_t>(plan_.groups[g].geometry.blocks_for(tokens)));
  }
}

void ModelKv::slide(SequenceKv& sequence, std::int64_t next) {
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    const KvGroupPlan& plan = plan_.groups[g];
    if (plan.window == 0) {
      continue;
    }
    SequenceKv::Group& group = sequence.groups_[g];
    const std::int64_t first_needed = std::max<std::int64_t>(next - plan.window + 1, 0);
    const auto live = static_cast<std::size_t>(first_needed / plan.geometry.block_tokens);
    for (; group.first_live < std::min(live, group.blocks.size()); ++group.first_live) {
      caches_[g].free(group.blocks[group.first_live]);
    }
  }
}

void ModelKv::drop_back(SequenceKv& sequence, std::size_t group, std::size_t blocks) {
  SequenceKv::Group& own = sequence.groups_[group];
  while (own.blocks.size() > blocks) {
    if (own.blocks.size() > own.first_live) {
      caches_[group].free(own.blocks.back());
    }
    own.blocks.pop_back();
  }
  own.first_live = std::min(own.first_live, own.blocks.size());
}

std::int32_t ModelKv::block_number(std::size_t group, memory::KvBlockRef block) const {
  const std::uint64_t number =
      block.page.value() * plan_.groups[group].geometry.blocks_per_page + block.slot;
  HEDDLE_CHECK(number <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(number);
}

std::int64_t ModelKv::pages_held() const {
  std::int64_t pages = 0;
  for (const memory::KvCache& cache : caches_) {
    pages += cache.pages_held();
  }
  return pages;
}

std::int64_t ModelKv::pages_for(std::int64_t tokens, std::int64_t step_tokens) const {
  std::int64_t pages = 0;
  for (const KvGroupPlan& group : plan_.groups) {
    // A window begins and a step ends anywhere within a block.
    const std::int64_t live = group.window + step_tokens + 2 * group.geometry.block_tokens;
    pages += group.geometry.pages_for(group.window > 0 ? std::min(tokens, live) : tokens);
  }
  return pages;
}

}  // namespace heddle::engine
