#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/messages.h"

namespace heddle::core::test {

/// The KV of a modelled engine, as memory::KvCache keeps it: blocks on pages, used by several
/// sequences or idle; pages that nothing uses are cached until somebody needs them. Blocks remember
/// what was written, so that whoever reads one can see whether it is what he takes it for.
class ModelledKv {
 public:
  static constexpr std::int64_t kBlockTokens = 4;
  static constexpr std::size_t kPageBlocks = 2;

  using BlockId = std::uint64_t;
  /// All that decides what a block holds.
  struct Content {
    ModelId model{};
    std::string salt{};
    std::vector<TokenId> tokens{};  ///< From the first of the sequence to the last in the block.
    friend auto operator<=>(const Content&, const Content&) = default;
  };

  explicit ModelledKv(std::set<PageId>& free) : free_(free) {}

  /// A block with one user; nothing when there is no room.
  std::optional<BlockId> allocate(ModelId model) {
    std::optional<PageId> page = page_with_room(model);
    if (!page && (!free_.empty() || drop_oldest())) {
      page = free_.extract(free_.begin()).value();
      taken_.push_back(*page);
      pages_[*page].model = model;
    }
    if (!page) {
      const auto idle = oldest_idle(model);
      if (!idle) {
        return std::nullopt;
      }
      page = blocks_.at(*idle).page;
      HEDDLE_CHECK(used(pages_.at(*page)));  // Or it would be a cached one.
      forget(*idle);
    }
    const BlockId id = ++blocks_given_;
    blocks_[id] = {.page = *page, .users = 1};
    pages_.at(*page).blocks.insert(id);
    return id;
  }

  void free(BlockId id) {
    Block& block = blocks_.at(id);
    HEDDLE_CHECK(block.users > 0);
    if (--block.users > 0) {
      return;
    }
    block.idle_at = ++ticks_;
    if (!block.kept) {
      forget(id);
    }
  }

  void write(BlockId id, Content content) {
    HEDDLE_CHECK(!blocks_.at(id).kept);
    blocks_.at(id).content = std::move(content);
  }
  [[nodiscard]] const Content& read(BlockId id) const {
    HEDDLE_CHECK(blocks_.at(id).users > 0);
    return blocks_.at(id).content;
  }
  [[nodiscard]] PageId page_of(BlockId id) const { return blocks_.at(id).page; }

  void keep(BlockId id) {
    if (kept_.emplace(blocks_.at(id).content, id).second) {
      blocks_.at(id).kept = true;
    }
  }
  std::optional<BlockId> use(const Content& content) {
    const auto found = kept_.find(content);
    if (found == kept_.end()) {
      return std::nullopt;
    }
    ++blocks_.at(found->second).users;
    return found->second;
  }

  [[nodiscard]] std::int64_t pages_used(ModelId model) const {
    return std::count_if(pages_.begin(), pages_.end(), [&](const auto& entry) {
      return entry.second.model == model && used(entry.second);
    });
  }
  [[nodiscard]] std::int64_t pages_cached() const {
    return std::count_if(
        pages_.begin(), pages_.end(), [&](const auto& entry) { return !used(entry.second); });
  }
  void trim(std::int64_t keep) {
    while (pages_cached() > keep) {
      HEDDLE_CHECK(drop_oldest());
    }
  }
  /// The model goes; none of its blocks is used.
  void drop_model(ModelId model) {
    const auto pages = pages_;
    for (const auto& [id, page] : pages) {
      if (page.model == model) {
        HEDDLE_CHECK(!used(page));
        drop(id);
      }
    }
  }
  /// Pages that came from the pool since this was asked.
  std::vector<PageId> taken() { return std::exchange(taken_, {}); }

 private:
  struct Block {
    PageId page{};
    int users = 0;
    bool kept = false;
    std::uint64_t idle_at = 0;
    Content content{};
  };
  struct Page {
    ModelId model{};
    std::set<BlockId> blocks{};
  };

  [[nodiscard]] bool used(const Page& page) const {
    return std::any_of(page.blocks.begin(), page.blocks.end(), [&](BlockId id) {
      return blocks_.at(id).users > 0;
    });
  }
  [[nodiscard]] std::optional<PageId> page_with_room(ModelId model) const {
    for (const auto& [id, page] : pages_) {
      if (page.model == model && page.blocks.size() < kPageBlocks && used(page)) {
        return id;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<BlockId> oldest_idle(ModelId model) const {
    std::optional<BlockId> oldest;
    for (const auto& [id, block] : blocks_) {
      if (pages_.at(block.page).model == model && block.users == 0 &&
          (!oldest || block.idle_at < blocks_.at(*oldest).idle_at)) {
        oldest = id;
      }
    }
    return oldest;
  }
  bool drop_oldest() {
    std::optional<std::pair<std::uint64_t, PageId>> oldest;
    for (const auto& [id, page] : pages_) {
      if (used(page)) {
        continue;
      }
      std::uint64_t idle_at = 0;
      for (const BlockId block : page.blocks) {
        idle_at = std::max(idle_at, blocks_.at(block).idle_at);
      }
      oldest = std::min(oldest.value_or(std::pair(idle_at, id)), std::pair(idle_at, id));
    }
    if (oldest) {
      drop(oldest->second);
    }
    return oldest.has_value();
  }
  void drop(PageId id) {
    const std::set<BlockId> blocks = pages_.at(id).blocks;
    for (const BlockId block : blocks) {
      forget(block);
    }
  }
  void forget(BlockId id) {
    const Block block = blocks_.extract(id).mapped();
    if (block.kept) {
      kept_.erase(block.content);
    }
    const auto page = pages_.find(block.page);
    page->second.blocks.erase(id);
    if (page->second.blocks.empty()) {
      HEDDLE_CHECK(free_.insert(page->first).second);
      pages_.erase(page);
    }
  }

  std::set<PageId>& free_;
  std::map<PageId, Page> pages_{};
  std::map<BlockId, Block> blocks_{};
  std::map<Content, BlockId> kept_{};
  std::vector<PageId> taken_{};
  std::uint64_t blocks_given_ = 0;
  std::uint64_t ticks_ = 0;
};

}  // namespace heddle::core::test
