#include "engine/model_kv.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "ops/attention.h"

namespace heddle::engine {
namespace {

/// A prefix that others have as well is worth a copy of the state where that spares so many blocks.
constexpr std::int64_t kBlocksParted = 4;

std::deque<memory::KvCache> make_caches(memory::PagePool& pool,
                                        memory::OwnerId owner,
                                        const KvPlan& plan,
                                        memory::CachedPages& cached,
                                        memory::KvKeeper keeper) {
  std::deque<memory::KvCache> caches;
  for (const KvGroupPlan& group : plan.groups) {
    keeper.origin.group = caches.size();
    caches.emplace_back(pool, owner, group.geometry, cached, keeper);
  }
  return caches;
}

}  // namespace

ModelKv::ModelKv(memory::PagePool& pool,
                 memory::OwnerId owner,
                 KvPlan plan,
                 memory::CachedPages& cached,
                 const memory::KvKeeper& keeper)
    : plan_(std::move(plan)),
      caches_(make_caches(pool, owner, plan_, cached, keeper)),
      states_(pool, cached, caches_, plan_.kv_groups()),
      guests_(std::make_unique<Guests>(pool.device())) {
  for (const KvGroupPlan& group : plan_.groups) {
    guests_->caches.emplace_back(guests_->pool, owner, group.geometry, guests_->no_prefixes);
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
    if (g >= plan_.kv_groups() && resume_in_place(sequence)) {
      return {};
    }
    for (std::size_t i = 0; i <= g; ++i) {
      drop_back(sequence, i, before[i]);
    }
    return grown.error();
  }
  resume(sequence);
  return {};
}

/// Has the sequence, whose own blocks for its state are there, go on from the copy that it found.
void ModelKv::resume(SequenceKv& sequence) {
  if (sequence.states_.resumed) {
    std::vector<memory::KvBlockRef> own;
    for (std::size_t g = plan_.kv_groups(); g < caches_.size(); ++g) {
      own.push_back(sequence.groups_[g].blocks.front());
    }
    states_.resume(sequence.states_, own);
  }
}

/// For want of blocks of its own it has those of the copy, where nobody else goes on from that.
bool ModelKv::resume_in_place(SequenceKv& sequence) {
  const std::vector<memory::KvBlockRef> taken = states_.take_over(sequence.states_);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    drop_back(sequence, plan_.kv_groups() + i, 0);
    sequence.groups_[plan_.kv_groups() + i].blocks = {taken[i]};
  }
  return !taken.empty();
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
  sequence.guest_tokens_ = std::min(sequence.guest_tokens_, tokens);
  if (tokens == 0) {
    states_.leave(sequence.states_);
  }
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    drop_back(sequence, g, static_cast<std::size_t>(plan_.groups[g].geometry.blocks_for(tokens)));
  }
}

/// The first block of a group that tokens from position `next` on attend to.
std::size_t ModelKv::first_needed(std::size_t group, std::int64_t next) const {
  const KvGroupPlan& plan = plan_.groups[group];
  const std::int64_t position =
      plan.window == 0 ? 0 : std::max<std::int64_t>(next - plan.window + 1, 0);
  return static_cast<std::size_t>(position / plan.geometry.block_tokens);
}

void ModelKv::slide(SequenceKv& sequence, std::int64_t next) {
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    SequenceKv::Group& group = sequence.groups_[g];
    const std::size_t live = std::min(first_needed(g, next), group.blocks.size());
    for (; group.first_live < live; ++group.first_live) {
      caches_[g].free(group.blocks[group.first_live]);
    }
  }
}

std::int64_t ModelKv::cached_length(const SequenceKv& sequence, std::int64_t tokens) const {
  return cached_length(sequence, tokens, Among::kCache);
}

/// What a copy of the state behind so many tokens is found by: the last block of these says it all.
const memory::BlockKey& ModelKv::key_of(const SequenceKv& sequence,
                                        const KvPlan& plan,
                                        std::int64_t length) {
  const auto blocks = static_cast<std::size_t>(length / plan.groups[0].geometry.block_tokens);
  return sequence.groups_[0].keys[blocks - 1];
}

bool ModelKv::has_state(const SequenceKv& sequence, std::int64_t length, Among among) const {
  return among == Among::kWithoutStates || !states_.any() ||
         states_.contains(key_of(sequence, plan_, length), among == Among::kCacheAndStore);
}

std::int64_t ModelKv::cached_length(const SequenceKv& sequence,
                                    std::int64_t tokens,
                                    Among among) const {
  const std::size_t groups = plan_.kv_groups();
  const auto has = [&](std::size_t g, const memory::BlockKey& key) {
    return caches_[g].contains(key) || (among == Among::kCacheAndStore && caches_[g].stored(key));
  };
  // Per group and block: how many blocks are there in a row that ends with it.
  std::vector<std::vector<std::size_t>> there(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::int64_t block_tokens = plan_.groups[g].geometry.block_tokens;
    std::size_t row = 0;
    for (std::int64_t end = block_tokens; end <= tokens; end += block_tokens) {
      row = has(g, sequence.groups_[g].keys[there[g].size()]) ? row + 1 : 0;
      if (row == 0 && plan_.groups[g].window == 0) {
        break;
      }
      there[g].push_back(row);
    }
    tokens = std::ssize(there[g]) * block_tokens;
  }
  const auto complete = [&](std::size_t g, std::int64_t length) {
    const auto blocks = static_cast<std::size_t>(length / plan_.groups[g].geometry.block_tokens);
    return there[g][blocks - 1] >= blocks - std::min(first_needed(g, length), blocks);
  };
  const std::int64_t aligned = plan_.aligned_tokens();
  std::int64_t length = tokens / aligned * aligned;
  for (std::size_t g = 0; g <= groups && length > 0;) {
    if (g < groups ? complete(g, length) : has_state(sequence, length, among)) {
      ++g;
    } else {
      length -= aligned;
      g = 0;
    }
  }
  return length;
}

void ModelKv::extend_keys(SequenceKv& sequence,
                          const PrefixKeys& keys,
                          std::span<const TokenId> tokens) const {
  for (std::size_t g = 0; g < plan_.kv_groups(); ++g) {
    keys.extend(sequence.groups_[g].keys, tokens, plan_.groups[g].geometry.block_tokens);
  }
}

std::int64_t ModelKv::take_prefix(SequenceKv& sequence,
                                  const PrefixKeys& keys,
                                  std::span<const TokenId> tokens) {
  for (const SequenceKv::Group& group : sequence.groups_) {
    HEDDLE_CHECK(group.blocks.empty());
  }
  extend_keys(sequence, keys, tokens);
  const std::int64_t length = cached_length(sequence, std::ssize(tokens));
  for (std::size_t g = 0; g < plan_.kv_groups(); ++g) {
    SequenceKv::Group& group = sequence.groups_[g];
    const auto blocks = static_cast<std::size_t>(length / plan_.groups[g].geometry.block_tokens);
    group.first_live = std::min(first_needed(g, length), blocks);
    group.blocks.resize(blocks);
    group.offered = blocks;
    for (std::size_t i = group.first_live; i < blocks; ++i) {
      group.blocks[i] = caches_[g].use(group.keys[i]).value();
    }
  }
  if (states_.any()) {
    const std::int64_t parted = cached_length(sequence, std::ssize(tokens), Among::kWithoutStates);
    const bool worth = parted - length >= kBlocksParted * plan_.aligned_tokens();
    sequence.states_.parted = worth ? parted : 0;
    if (length > 0) {
      states_.hold(sequence.states_, length, key_of(sequence, plan_, length));
    }
  }
  return length;
}

void ModelKv::keep_prefix(SequenceKv& sequence,
                          const PrefixKeys& keys,
                          std::span<const TokenId> tokens,
                          std::span<const std::int64_t> incomplete) {
  extend_keys(sequence, keys, tokens);
  for (std::size_t g = 0; g < plan_.kv_groups(); ++g) {
    SequenceKv::Group& group = sequence.groups_[g];
    const std::int64_t block_tokens = plan_.groups[g].geometry.block_tokens;
    const auto full = static_cast<std::size_t>(std::ssize(tokens) / block_tokens);
    for (; group.offered < full; ++group.offered) {
      const std::int64_t begin = static_cast<std::int64_t>(group.offered) * block_tokens;
      if (!incomplete.empty() && begin < incomplete[g]) {
        continue;
      }
      // Where another sequence computed the same meanwhile, that one's is found and this one ends
      // with its sequence.
      caches_[g].keep(group.blocks[group.offered], group.keys[group.offered]);
    }
  }
}

void ModelKv::lend(std::span<const memory::PageId> pages, std::byte* memory) {
  std::byte* const at =
      memory != nullptr ? memory : guests_->pool.device().page_address(memory::PageId{0});
  HEDDLE_CHECK(lent_pages() == 0 || at == guests_->memory);
  guests_->memory = at;
  if (!pages.empty()) {
    guests_->pool.number_to(std::ranges::max(pages).value() + 1);
  }
  guests_->pool.adopt(pages);
}

/// Where a block of guests is; KvCache::address is of the device's own pages.
std::byte* ModelKv::guest_address(std::size_t group, memory::KvBlockRef block) const {
  return guests_->memory + block.page.value() * guests_->pool.device().properties().page_bytes +
         block.slot * block_bytes(group);
}

/// Parts of the host's memory are nothing apart: a stream's copy would stand for a link's.
void ModelKv::copy_block(device::Stream& stream,
                         std::size_t group,
                         std::byte* target,
                         const std::byte* source) const {
  if (guests_->pool.device().properties().kind == device::Kind::kCpu) {
    std::memcpy(target, source, block_bytes(group));
  } else {
    stream.copy(target, source, block_bytes(group));
  }
}

std::vector<memory::PageId> ModelKv::give_back(std::int64_t count) {
  return guests_->pool.surrender(std::min(count, guests_->pool.free_count())).value();
}

std::int64_t ModelKv::border_tokens() const {
  return ops::attention_border(guests_->pool.device().properties().kind);
}

ops::GuestSequence ModelKv::guest_sequence(const SequenceKv& sequence) const {
  ops::GuestSequence guest{.border = static_cast<std::int32_t>(guest_tokens(sequence))};
  guest.blocks.resize(plan_.kv_groups());
  for (std::size_t g = 0; g < plan_.kv_groups(); ++g) {
    for (const memory::KvBlockRef block : sequence.groups_[g].guests) {
      guest.blocks[g].push_back(block_number(g, block));
    }
  }
  return guest;
}

namespace {

void free_all(std::deque<memory::KvCache>& caches,
              const std::vector<std::vector<memory::KvBlockRef>>& made) {
  for (std::size_t g = 0; g < made.size(); ++g) {
    for (const memory::KvBlockRef block : made[g]) {
      caches[g].free(block);
    }
  }
}

/// So many blocks of each cache; all or kResourceExhausted, and then none.
Result<std::vector<std::vector<memory::KvBlockRef>>> allocate(
    std::deque<memory::KvCache>& caches, const std::vector<std::size_t>& counts) {
  std::vector<std::vector<memory::KvBlockRef>> made(caches.size());
  for (std::size_t g = 0; g < caches.size(); ++g) {
    while (made[g].size() < counts[g]) {
      const auto block = caches[g].allocate();
      if (block) {
        made[g].push_back(*block);
        continue;
      }
      free_all(caches, made);
      return block.error();
    }
  }
  return made;
}

}  // namespace

Result<void> ModelKv::move_out(device::Stream& stream, SequenceKv& sequence, std::int64_t tokens) {
  const std::int64_t before = sequence.guest_tokens_;
  HEDDLE_CHECK(tokens % border_tokens() == 0 && tokens >= before);
  std::vector<std::size_t> counts(caches_.size());
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    const KvGroupPlan& group = plan_.groups[g];
    counts[g] = group.window > 0 ? 0
                                 : static_cast<std::size_t>(group.geometry.blocks_for(tokens)) -
                                       sequence.groups_[g].guests.size();
  }
  const auto made = allocate(guests_->caches, counts);
  if (!made) {
    return made.error();
  }
  const auto old = [&](std::size_t g) { return sequence.groups_[g].guests.size(); };
  const auto there = [&](std::size_t g, std::size_t i) {
    return i < old(g) ? sequence.groups_[g].guests[i] : (*made)[g][i - old(g)];
  };
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    // The block that the old border was in is there as well, with fewer positions than by now.
    const auto first = static_cast<std::size_t>(before / plan_.groups[g].geometry.block_tokens);
    for (std::size_t i = first; i < counts[g] + old(g); ++i) {
      copy_block(stream,
                 g,
                 guest_address(g, there(g, i)),
                 caches_[g].address(sequence.groups_[g].blocks[i]));
    }
  }
  if (const auto copied = stream.synchronize(); !copied) {
    free_all(guests_->caches, *made);
    return copied;
  }
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    SequenceKv::Group& own = sequence.groups_[g];
    own.guests.insert(own.guests.end(), (*made)[g].begin(), (*made)[g].end());
    const auto gone = static_cast<std::size_t>(tokens / plan_.groups[g].geometry.block_tokens);
    for (; plan_.groups[g].window == 0 && own.first_live < gone; ++own.first_live) {
      caches_[g].free(own.blocks[own.first_live]);
    }
  }
  sequence.guest_tokens_ = tokens;
  return {};
}

Result<void> ModelKv::move_home(device::Stream& stream, SequenceKv& sequence) {
  std::vector<std::size_t> counts;
  for (const SequenceKv::Group& own : sequence.groups_) {
    counts.push_back(own.guests.empty() ? 0 : own.first_live);
  }
  const auto made = allocate(caches_, counts);
  if (!made) {
    return made.error();
  }
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    for (std::size_t i = 0; i < counts[g]; ++i) {
      copy_block(stream,
                 g,
                 caches_[g].address((*made)[g][i]),
                 guest_address(g, sequence.groups_[g].guests[i]));
    }
  }
  if (const auto copied = stream.synchronize(); !copied) {
    free_all(caches_, *made);
    return copied;
  }
  for (std::size_t g = 0; g < caches_.size(); ++g) {
    SequenceKv::Group& own = sequence.groups_[g];
    std::ranges::copy((*made)[g], own.blocks.begin());
    if (!own.guests.empty()) {
      drop_guests(own, g, 0);
      own.first_live = 0;
    }
  }
  sequence.guest_tokens_ = 0;
  return {};
}

void ModelKv::drop_guests(SequenceKv::Group& own, std::size_t group, std::size_t blocks) {
  for (; own.guests.size() > blocks; own.guests.pop_back()) {
    guests_->caches[group].free(own.guests.back());
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
  drop_guests(own, group, own.blocks.size());
  own.first_live = std::min(own.first_live, own.blocks.size());
  own.offered = std::min(own.offered, own.blocks.size());
}

std::int32_t ModelKv::block_number(std::size_t group, memory::KvBlockRef block) const {
  const std::uint64_t number =
      block.page.value() * plan_.groups[group].geometry.blocks_per_page + block.slot;
  HEDDLE_CHECK(number <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(number);
}

std::int64_t ModelKv::pages_used() const {
  std::int64_t pages = 0;
  for (const memory::KvCache& cache : caches_) {
    pages += cache.pages_used();
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
