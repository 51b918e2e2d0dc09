#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace heddle::core::manager {

/// A std::map by id that finds in constant time: a hash beside it knows where each entry is. It
/// iterates in the order of ids, and entries stay where they are until they are erased. It is not
/// copied.
template <class Key, class Value>
class Table {
 public:
  using Map = std::map<Key, Value>;
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() = default;

  [[nodiscard]] iterator begin() { return map_.begin(); }
  [[nodiscard]] iterator end() { return map_.end(); }
  [[nodiscard]] const_iterator begin() const { return map_.begin(); }
  [[nodiscard]] const_iterator end() const { return map_.end(); }
  [[nodiscard]] std::size_t size() const { return map_.size(); }
  [[nodiscard]] bool empty() const { return map_.empty(); }
  /// The first entry that is not below the key. O(log n).
  [[nodiscard]] const_iterator lower_bound(Key key) const { return map_.lower_bound(key); }

  [[nodiscard]] iterator find(Key key) {
    const std::size_t slot = slot_of(key);
    return slot == kNone ? map_.end() : slots_[slot].entry;
  }
  [[nodiscard]] const_iterator find(Key key) const {
    const std::size_t slot = slot_of(key);
    return slot == kNone ? map_.end() : const_iterator(slots_[slot].entry);
  }
  [[nodiscard]] bool contains(Key key) const { return slot_of(key) != kNone; }
  /// CHECK-fails where there is no such entry.
  [[nodiscard]] Value& at(Key key) {
    const std::size_t slot = slot_of(key);
    HEDDLE_CHECK(slot != kNone);
    return slots_[slot].entry->second;
  }
  [[nodiscard]] const Value& at(Key key) const {
    const std::size_t slot = slot_of(key);
    HEDDLE_CHECK(slot != kNone);
    return slots_[slot].entry->second;
  }

  std::pair<iterator, bool> try_emplace(Key key, Value value = {}) {
    const auto made = map_.try_emplace(key, std::move(value));
    if (made.second) {
      note(made.first);
    }
    return made;
  }
  Value& operator[](Key key) {
    const std::size_t slot = slot_of(key);
    return slot == kNone ? try_emplace(key).first->second : slots_[slot].entry->second;
  }
  void erase(Key key) {
    const std::size_t slot = slot_of(key);
    if (slot != kNone) {
      map_.erase(slots_[slot].entry);
      vacate(slot);
    }
  }
  /// Erases the entries of which `gone` holds.
  template <class Gone>
  void erase_if(Gone gone) {
    std::erase_if(map_, gone);
    rebuild(slots_.size());
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    iterator entry{};
    bool taken = false;
  };
  static constexpr std::size_t kNone = SIZE_MAX;
  static constexpr std::size_t kFewest = 16;

  [[nodiscard]] std::size_t home(std::uint64_t key) const {
    std::uint64_t mixed = key * 0x9e37'79b9'7f4a'7c15ULL;
    mixed ^= mixed >> 32U;
    return static_cast<std::size_t>(mixed) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t slot) const {
    return (slot + 1) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t slot_of(Key key) const {
    if (slots_.empty()) {
      return kNone;
    }
    std::size_t slot = home(key.value());
    while (slots_[slot].taken && slots_[slot].key != key.value()) {
      slot = next(slot);
    }
    return slots_[slot].taken ? slot : kNone;
  }
  /// The entry is new. At most a half of the slots are taken.
  void note(iterator entry) {
    if (2 * map_.size() > slots_.size()) {
      rebuild(slots_.empty() ? kFewest : 2 * slots_.size());
    } else {
      put(entry);
    }
  }
  void put(iterator entry) {
    std::size_t slot = home(entry->first.value());
    while (slots_[slot].taken) {
      slot = next(slot);
    }
    slots_[slot] = {.key = entry->first.value(), .entry = entry, .taken = true};
  }
  void rebuild(std::size_t slots) {
    slots_.assign(slots, {});
    for (auto entry = map_.begin(); entry != map_.end(); ++entry) {
      put(entry);
    }
  }
  /// Entries that stand behind the slot because it was taken move up.
  void vacate(std::size_t slot) {
    std::size_t hole = slot;
    for (std::size_t at = next(hole); slots_[at].taken; at = next(at)) {
      const std::size_t wants = home(slots_[at].key);
      if (((at - wants) & (slots_.size() - 1)) >= ((at - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole].taken = false;
  }

  Map map_{};
  std::vector<Slot> slots_{};  // By hash, the next free one where that is taken.
};

}  // namespace heddle::core::manager
