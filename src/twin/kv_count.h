#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "core/worker_core.h"
#include "policy/admission.h"

namespace heddle::twin {

/// The pool of a worker's free pages, and the KV of its sequences counted in pages of it. Blocks of
/// one model share pages as if they were always packed. Prefixes that no sequence uses any more
/// stay, where that is wanted, until somebody needs their pages; nobody finds them again.
class KvCount {
 public:
  KvCount(std::vector<PageId> free, bool keep_prefixes)
      : free_(std::move(free)), keep_prefixes_(keep_prefixes) {}

  /// From the pool, which has one: cached prefixes are no part of it.
  [[nodiscard]] PageId take();
  void put(PageId page) { free_.push_back(page); }
  [[nodiscard]] std::int64_t free() const { return std::ssize(free_); }

  void add_model(ModelId model, std::vector<policy::KvGroup> groups);
  /// Its sequences are gone.
  void drop_model(ModelId model);

  /// The sequence has `tokens` now. False, and nothing has changed, where there are no pages for
  /// more of them, not even of cached prefixes.
  bool resize(ModelId model, core::SequenceId sequence, std::int64_t tokens);
  /// It is gone, and its pages are free or hold its prefix.
  void remove(ModelId model, core::SequenceId sequence);
  /// Frees cached pages until there are at most so many.
  void trim(std::int64_t keep);

  /// Whether that changed since the last call.
  [[nodiscard]] bool changed();
  [[nodiscard]] core::KvCounted counted() const;

 private:
  struct Model {
    std::vector<policy::KvGroup> groups{};
    std::map<core::SequenceId, std::int64_t> tokens{};
    std::vector<PageId> pages{};
  };
  [[nodiscard]] static std::int64_t pages_of(const Model& model);

  std::vector<PageId> free_;
  bool keep_prefixes_;
  bool changed_ = false;
  std::map<ModelId, Model> models_{};
  std::vector<PageId> cached_{};
};

}  // namespace heddle::twin
