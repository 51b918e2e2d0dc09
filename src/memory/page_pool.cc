#include "memory/page_pool.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace heddle::memory {
namespace {

/// Owns the free pages of the pool.
constexpr OwnerId kNobody{};
/// Stands for an owner where the pool does not have the page.
constexpr OwnerId kElsewhere{~std::uint64_t{0}};

Error too_few(const std::string& attempt, std::int64_t free, std::int64_t size) {
  return Error{.code = Code::kResourceExhausted,
               .message = attempt + ": " + std::to_string(free) + " of " + std::to_string(size) +
                          " pages are free"};
}

}  // namespace

PagePool::PagePool(device::Device& device, std::span<const PageId> pages)
    : device_(device), owners_(device.properties().page_count, kElsewhere) {
  adopt(pages);
}

Result<std::vector<PageId>> PagePool::take(OwnerId owner, std::int64_t count) {
  HEDDLE_CHECK(count >= 0 && owner != kNobody && owner != kElsewhere);
  if (count > free_count_) {
    return too_few(
        "take " + std::to_string(count) + " pages for lease " + std::to_string(owner.value()),
        free_count_,
        size_);
  }
  const auto wanted = static_cast<std::uint64_t>(count);
  const auto enough = std::find_if(
      free_runs_.begin(), free_runs_.end(), [&](const auto& run) { return run.second >= wanted; });
  std::vector<PageId> taken;
  taken.reserve(wanted);
  while (taken.size() < wanted) {
    const auto run = enough == free_runs_.end() ? free_runs_.begin() : enough;
    const std::uint64_t first = run->first;
    const std::uint64_t length = std::min(run->second, wanted - taken.size());
    for (std::uint64_t page = first; page < first + length; ++page) {
      taken.emplace_back(page);
    }
    remove_free(first, length);
  }
  set_owner(taken, owner);
  if (on_taken_) {
    on_taken_(owner, taken);
  }
  return taken;
}

void PagePool::put(OwnerId owner, std::span<const PageId> pages) {
  HEDDLE_CHECK(owner != kNobody);
  drop_owner(pages, owner, kNobody);
  add_free(pages);
}

void PagePool::pass(OwnerId from, OwnerId to, PageId page) {
  HEDDLE_CHECK(from != kNobody && to != kNobody);
  drop_owner({&page, 1}, from, kNobody);
  set_owner({&page, 1}, to);
}

void PagePool::number_to(std::uint64_t page_count) {
  if (page_count > owners_.size()) {
    owners_.resize(page_count, kElsewhere);
  }
}

void PagePool::adopt(std::span<const PageId> pages, OwnerId owner) {
  for (const PageId page : pages) {
    HEDDLE_CHECK(page.value() < owners_.size());
    HEDDLE_CHECK(owners_[page.value()] == kElsewhere);
    owners_[page.value()] = kNobody;
  }
  size_ += std::ssize(pages);
  if (owner == kNobody) {
    add_free(pages);
  } else {
    set_owner(pages, owner);
  }
}

Result<std::vector<PageId>> PagePool::surrender(std::int64_t count) {
  HEDDLE_CHECK(count >= 0);
  if (count > free_count_) {
    return too_few("give " + std::to_string(count) + " pages to the host", free_count_, size_);
  }
  std::vector<PageId> given;
  given.reserve(static_cast<std::size_t>(count));
  while (std::ssize(given) < count) {
    const auto run = std::prev(free_runs_.end());
    const auto wanted = static_cast<std::uint64_t>(count) - given.size();
    const std::uint64_t length = std::min(run->second, wanted);
    const std::uint64_t first = run->first + run->second - length;
    for (std::uint64_t page = first + length; page > first; --page) {
      given.emplace_back(page - 1);
      owners_[page - 1] = kElsewhere;
    }
    remove_free(first, length);
  }
  size_ -= count;
  return given;
}

void PagePool::surrender(OwnerId owner, std::span<const PageId> pages) {
  HEDDLE_CHECK(owner != kNobody);
  drop_owner(pages, owner, kElsewhere);
  size_ -= std::ssize(pages);
}

bool PagePool::contains(PageId page) const {
  return page.value() < owners_.size() && owners_[page.value()] != kElsewhere;
}

OwnerId PagePool::owner_of(PageId page) const {
  HEDDLE_CHECK(contains(page));
  return owners_[page.value()];
}

std::int64_t PagePool::owned_count(OwnerId owner) const {
  const auto found = owned_.find(owner);
  return found == owned_.end() ? 0 : found->second;
}

void PagePool::check_invariants() const {
  std::map<OwnerId, std::int64_t> owned;
  std::int64_t size = 0;
  std::int64_t free = 0;
  std::map<std::uint64_t, std::uint64_t> runs;
  bool after_free = false;
  for (std::uint64_t page = 0; page < owners_.size(); ++page) {
    const OwnerId owner = owners_[page];
    size += owner == kElsewhere ? 0 : 1;
    if (owner == kNobody) {
      ++free;
      if (!after_free) {
        runs.emplace_hint(runs.end(), page, 0);
      }
      ++std::prev(runs.end())->second;
    } else if (owner != kElsewhere) {
      ++owned[owner];
    }
    after_free = owner == kNobody;
  }
  HEDDLE_CHECK(size == size_);
  HEDDLE_CHECK(free == free_count_);
  HEDDLE_CHECK(runs == free_runs_);
  HEDDLE_CHECK(owned == owned_);
}

/// Adds pages to the free runs, joining neighbours.
void PagePool::add_free(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    std::uint64_t first = page.value();
    std::uint64_t length = 1;
    const auto after = free_runs_.upper_bound(first);
    if (after != free_runs_.end() && after->first == first + 1) {
      length += after->second;
      free_runs_.erase(after);
    }
    const auto next = free_runs_.upper_bound(first);
    if (next != free_runs_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == first) {
        before->second += length;
        continue;
      }
    }
    free_runs_.emplace_hint(next, first, length);
  }
  free_count_ += std::ssize(pages);
}

/// Takes the first or the last `length` pages off the free run in which they lie.
void PagePool::remove_free(std::uint64_t first, std::uint64_t length) {
  const auto run = std::prev(free_runs_.upper_bound(first));
  const std::uint64_t run_end = run->first + run->second;
  if (run->first < first) {
    run->second -= length;
  } else {
    free_runs_.erase(run);
    if (first + length < run_end) {
      free_runs_.emplace(first + length, run_end - first - length);
    }
  }
  free_count_ -= static_cast<std::int64_t>(length);
}

/// Gives pages that nobody owns to `owner`.
void PagePool::set_owner(std::span<const PageId> pages, OwnerId owner) {
  HEDDLE_CHECK(owner != kElsewhere);
  if (pages.empty()) {
    return;
  }
  for (const PageId page : pages) {
    owners_[page.value()] = owner;
  }
  owned_[owner] += std::ssize(pages);
}

/// Takes pages from their owner; they are marked `next`.
void PagePool::drop_owner(std::span<const PageId> pages, OwnerId owner, OwnerId next) {
  if (pages.empty()) {
    return;
  }
  for (const PageId page : pages) {
    HEDDLE_CHECK(owner_of(page) == owner);
    owners_[page.value()] = next;
  }
  const auto count = owned_.find(owner);
  count->second -= std::ssize(pages);
  if (count->second == 0) {
    owned_.erase(count);
  }
}

}  // namespace heddle::memory
