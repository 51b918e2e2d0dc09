#include "twin/kv_count.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

void KvCount::watch(Contents& contents, Life life) {
  contents_ = &contents;
  life_ = life;
  pool_.on_taken([this](memory::OwnerId /*owner*/, std::span<const PageId> pages) {
    contents_->begin_kv(life_, pages);
  });
}

PageId KvCount::take() {
  const auto page = pool_.surrender(1);
  HEDDLE_CHECK(page.has_value());
  return page->front();
}

void KvCount::add_model(ModelId id, const std::vector<policy::KvGroup>& groups) {
  Model& model = models_[id];
  HEDDLE_CHECK(model.caches.empty());
  model.groups = groups;
  model.guests = std::make_unique<Guests>(device_);
  if (contents_ != nullptr) {
    model.guests->pool.on_taken([this](memory::OwnerId /*owner*/, std::span<const PageId> pages) {
      contents_->begin_kv(life_, pages);
    });
  }
  for (const policy::KvGroup& group : groups) {
    const auto blocks = static_cast<std::uint32_t>(group.blocks_per_page);
    const memory::OwnerId owner(id.value() + 1);
    const memory::KvGeometry geometry{.block_tokens = group.tokens_per_block,
                                      .blocks_per_page = blocks,
                                      .block_bytes = UnbackedDevice::kPageBytes / blocks};
    model.caches.emplace_back(pool_, owner, geometry, cached_);
    model.guests->caches.emplace_back(
        model.guests->pool, owner, geometry, model.guests->no_prefixes);
  }
}

void KvCount::drop_model(ModelId model) {
  HEDDLE_CHECK(models_.at(model).sequences.empty());
  models_.erase(model);
  changed_ = true;
}

bool KvCount::grow(ModelId id, core::SequenceId sequence, std::int64_t tokens) {
  Model& model = models_.at(id);
  std::vector<Blocks>& own = model.sequences[sequence];
  own.resize(model.groups.size());
  std::vector<std::size_t> before;
  for (std::size_t g = 0; g < own.size(); ++g) {
    before.push_back(own[g].all.size());
    const auto wanted = static_cast<std::size_t>(model.caches[g].geometry().blocks_for(tokens));
    while (own[g].all.size() < wanted) {
      const auto block = model.caches[g].allocate();
      if (!block) {
        for (std::size_t i = 0; i < before.size(); ++i) {
          cut(model.caches[i], own[i], before[i]);
        }
        return false;
      }
      own[g].all.push_back(*block);
    }
  }
  changed_ = true;
  return true;
}

void KvCount::shrink(ModelId id, core::SequenceId sequence) {
  Model& model = models_.at(id);
  std::vector<Blocks>& own = model.sequences.at(sequence);
  for (std::size_t g = 0; g < own.size(); ++g) {
    const std::int64_t blocks = model.caches[g].geometry().blocks_for(own[g].computed);
    cut(model.caches[g], own[g], static_cast<std::size_t>(blocks));
  }
  changed_ = true;
}

/// Reads the KV of the tokens before, and writes that of those up to `tokens`.
void KvCount::write(const Blocks& blocks,
                    std::int64_t block_tokens,
                    std::int64_t tokens,
                    const PrefixMarks& marks) {
  for (std::size_t i = 0; i < blocks.away.size(); ++i) {
    const std::int64_t end = static_cast<std::int64_t>(i + 1) * block_tokens;
    contents_->use_kv(life_, blocks.away[i], marks.at(std::min(end, blocks.gone)));
  }
  for (std::size_t i = blocks.live; i < blocks.all.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * block_tokens;
    const std::int64_t end = begin + block_tokens;
    if (begin < blocks.computed) {
      contents_->use_kv(life_, blocks.all[i], marks.at(std::min(end, blocks.computed)));
    }
    if (end > blocks.computed && begin < tokens) {
      contents_->write_kv(life_, blocks.all[i], marks.at(std::min(end, tokens)));
    }
  }
}

void KvCount::compute(ModelId id,
                      core::SequenceId sequence,
                      std::int64_t tokens,
                      const PrefixMarks& marks) {
  Model& model = models_.at(id);
  for (std::size_t g = 0; g < model.groups.size(); ++g) {
    Blocks& own = model.sequences.at(sequence)[g];
    const policy::KvGroup& group = model.groups[g];
    if (contents_ != nullptr) {
      write(own, group.tokens_per_block, tokens, marks);
    }
    own.computed = tokens;
    const auto full = static_cast<std::size_t>(tokens / group.tokens_per_block);
    for (; keep_prefixes_ && own.kept < full; ++own.kept) {
      const std::int64_t end = static_cast<std::int64_t>(own.kept + 1) * group.tokens_per_block;
      const std::uint64_t key = marks.empty() ? ++prefixes_ : marks.at(end);
      model.caches[g].keep(own.all[own.kept], {.low = key, .high = 0});
    }
    const std::int64_t first = group.window == 0 ? 0 : tokens - group.window + 1;
    const auto live =
        static_cast<std::size_t>(std::max<std::int64_t>(first, 0) / group.tokens_per_block);
    for (; own.live < std::min(live, own.all.size()); ++own.live) {
      model.caches[g].free(own.all[own.live]);
    }
  }
  changed_ = true;
}

std::int64_t KvCount::find_prefix(ModelId id,
                                  core::SequenceId sequence,
                                  std::int64_t most,
                                  const PrefixMarks& marks) {
  Model& model = models_.at(id);
  if (marks.empty() || model.groups.size() != 1 || model.groups[0].window != 0) {
    return 0;
  }
  const std::int64_t block_tokens = model.groups[0].tokens_per_block;
  std::vector<Blocks>& own = model.sequences[sequence];
  own.resize(1);
  Blocks& found = own[0];
  HEDDLE_CHECK(found.all.empty());
  for (std::int64_t end = block_tokens; end <= most; end += block_tokens) {
    const auto block = model.caches[0].use({.low = marks.at(end), .high = 0});
    if (!block) {
      break;
    }
    found.all.push_back(*block);
    found.computed = end;
  }
  found.kept = found.all.size();
  changed_ = true;
  return found.computed;
}

void KvCount::remove(ModelId id, core::SequenceId sequence) {
  Model& model = models_.at(id);
  const auto found = model.sequences.find(sequence);
  if (found == model.sequences.end()) {
    return;
  }
  for (std::size_t g = 0; g < model.caches.size(); ++g) {
    cut(model.caches[g], found->second[g], 0);
    for (const memory::KvBlockRef block : found->second[g].away) {
      model.guests->caches[g].free(block);
    }
  }
  model.sequences.erase(found);
  changed_ = true;
}

void KvCount::cut(memory::KvCache& cache, Blocks& blocks, std::size_t count) {
  for (; blocks.all.size() > count; blocks.all.pop_back()) {
    if (blocks.all.size() > blocks.live) {
      cache.free(blocks.all.back());
    }
  }
}

void KvCount::lend(ModelId id, const std::vector<PageId>& pages) {
  models_.at(id).guests->pool.adopt(pages);
}

std::vector<PageId> KvCount::give_back(ModelId id, std::int64_t count) {
  return models_.at(id).guests->pool.surrender(count).value();
}

/// So many blocks of each cache, or none at all.
std::optional<std::vector<std::vector<memory::KvBlockRef>>> KvCount::allocate(
    std::deque<memory::KvCache>& caches, const std::vector<std::size_t>& counts) {
  std::vector<std::vector<memory::KvBlockRef>> made(caches.size());
  for (std::size_t g = 0; g < caches.size(); ++g) {
    while (made[g].size() < counts[g]) {
      const auto block = caches[g].allocate();
      if (!block) {
        for (std::size_t i = 0; i <= g; ++i) {
          for (const memory::KvBlockRef other : made[i]) {
            caches[i].free(other);
          }
        }
        return std::nullopt;
      }
      made[g].push_back(*block);
    }
  }
  return made;
}

/// Both know the tokens up to the last that they have KV of.
void KvCount::copy(memory::KvBlockRef from,
                   memory::KvBlockRef to,
                   std::int64_t from_tokens,
                   std::int64_t to_tokens,
                   const PrefixMarks& marks) {
  if (contents_ != nullptr) {
    contents_->use_kv(life_, from, marks.at(from_tokens));
    contents_->write_kv(life_, to, marks.at(to_tokens));
  }
}

std::int64_t KvCount::move_out(ModelId id,
                               core::SequenceId sequence,
                               std::int64_t tokens,
                               const PrefixMarks& marks) {
  constexpr std::int64_t kBorder = 16;
  Model& model = models_.at(id);
  std::vector<Blocks>& own = model.sequences.at(sequence);
  std::int64_t before = 0;
  std::vector<std::size_t> counts(own.size());
  tokens = tokens / kBorder * kBorder;
  for (std::size_t g = 0; g < own.size(); ++g) {
    before = std::max(before, own[g].gone);
    const std::int64_t blocks = model.caches[g].geometry().blocks_for(tokens);
    const std::int64_t more = blocks - std::ssize(own[g].away);
    counts[g] = model.groups[g].window > 0 || more < 0 ? 0 : static_cast<std::size_t>(more);
  }
  const auto made = tokens > before ? allocate(model.guests->caches, counts) : std::nullopt;
  if (!made) {
    return before;
  }
  changed_ = true;
  for (std::size_t g = 0; g < own.size(); ++g) {
    if (model.groups[g].window > 0) {
      continue;
    }
    Blocks& blocks = own[g];
    const std::int64_t length = model.groups[g].tokens_per_block;
    blocks.away.insert(blocks.away.end(), (*made)[g].begin(), (*made)[g].end());
    for (auto i = static_cast<std::size_t>(before / length); i < blocks.away.size(); ++i) {
      const std::int64_t end = static_cast<std::int64_t>(i + 1) * length;
      copy(blocks.all[i],
           blocks.away[i],
           std::min(end, blocks.computed),
           std::min(end, tokens),
           marks);
    }
    for (; blocks.live < static_cast<std::size_t>(tokens / length); ++blocks.live) {
      model.caches[g].free(blocks.all[blocks.live]);
    }
    blocks.gone = tokens;
  }
  return tokens;
}

std::int64_t KvCount::move_home(ModelId id, core::SequenceId sequence, const PrefixMarks& marks) {
  Model& model = models_.at(id);
  std::vector<Blocks>& own = model.sequences.at(sequence);
  std::vector<std::size_t> counts;
  std::int64_t there = 0;
  for (const Blocks& blocks : own) {
    counts.push_back(blocks.away.empty() ? 0 : blocks.live);
    there = std::max(there, blocks.gone);
  }
  const auto made = allocate(model.caches, counts);
  if (!made) {
    return there;
  }
  changed_ = true;
  for (std::size_t g = 0; g < own.size(); ++g) {
    Blocks& blocks = own[g];
    if (blocks.away.empty()) {
      continue;
    }
    for (std::size_t i = 0; i < counts[g]; ++i) {
      const std::int64_t end = static_cast<std::int64_t>(i + 1) * model.groups[g].tokens_per_block;
      blocks.all[i] = (*made)[g][i];
      copy(blocks.away[i], blocks.all[i], end, end, marks);
    }
    for (const memory::KvBlockRef block : std::exchange(blocks.away, {})) {
      model.guests->caches[g].free(block);
    }
    blocks.live = 0;
    blocks.gone = 0;
  }
  return 0;
}

std::int64_t KvCount::away(ModelId id, core::SequenceId sequence) const {
  const Model& model = models_.at(id);
  const auto found = model.sequences.find(sequence);
  std::int64_t away = 0;
  if (found != model.sequences.end()) {
    for (const Blocks& blocks : found->second) {
      away = std::max(away, blocks.gone);
    }
  }
  return away;
}

std::vector<core::SequenceId> KvCount::sequences(ModelId id) const {
  std::vector<core::SequenceId> all;
  for (const auto& [sequence, blocks] : models_.at(id).sequences) {
    all.push_back(sequence);
  }
  return all;
}

void KvCount::trim(std::int64_t keep) {
  while (cached_.count() > keep && cached_.drop_oldest(ledger::DropReason::kBound)) {
  }
  changed_ = true;
}

bool KvCount::changed() {
  return std::exchange(changed_, false);
}

core::KvCounted KvCount::counted() const {
  core::KvCounted counted{.cached_pages = cached_.count()};
  for (const auto& [id, model] : models_) {
    std::int64_t pages = 0;
    for (const memory::KvCache& cache : model.caches) {
      pages += cache.pages_used();
    }
    const memory::PagePool& lent = model.guests->pool;
    counted.kv.push_back(
        {.model = id, .pages = pages, .guest_pages = lent.size() - lent.free_count()});
  }
  return counted;
}

}  // namespace heddle::twin
