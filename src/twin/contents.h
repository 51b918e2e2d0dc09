#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/life.h"
#include "memory/kv_cache.h"

namespace heddle::twin {

using core::Life;

/// What every page of a host holds, told by whoever writes: a part of an image, or blocks of one
/// life's KV. CHECK-fails where a reader finds other than it expects. One thread.
class Contents {
 public:
  /// Pages have numbers below `pages`. Every image is in parts of `page_bytes` > 0.
  Contents(std::uint64_t pages, std::uint64_t page_bytes)
      : page_bytes_(page_bytes), pages_(pages) {}

  /// The first `bytes` of an image are in `pages`, of which `before` were.
  void read_image(ModelId model,
                  std::span<const PageId> pages,
                  std::uint64_t before,
                  std::uint64_t bytes);
  /// Likewise, copied from `source`.
  void copy_image(std::span<const PageId> source,
                  std::span<const PageId> window,
                  std::uint64_t before,
                  std::uint64_t bytes);
  /// A step reads the first `bytes` of a model's image.
  void use_image(ModelId model, std::span<const PageId> window, std::uint64_t bytes) const;

  /// A life's KV gets these pages; what they held is gone.
  void begin_kv(Life life, std::span<const PageId> pages);
  /// `mark` (PrefixMarks) is of all tokens up to the last that the block has KV of.
  void write_kv(Life life, memory::KvBlockRef block, std::uint64_t mark);
  void use_kv(Life life, memory::KvBlockRef block, std::uint64_t mark) const;

 private:
  struct Page {
    ModelId model{};
    std::size_t part = 0;
    std::optional<Life> kv{};  ///< If it holds KV, whose.
    std::vector<std::uint64_t> marks{};
  };
  [[nodiscard]] Page& page(PageId id) { return pages_.at(id.value()); }
  [[nodiscard]] const Page& page(PageId id) const { return pages_.at(id.value()); }
  /// Pages that the first `bytes` of an image touch.
  [[nodiscard]] std::size_t touched(std::uint64_t bytes) const;

  std::uint64_t page_bytes_;
  std::vector<Page> pages_;
};

/// The one right token at each place of each answer.
[[nodiscard]] inline TokenId right_token(std::int64_t prompt_tokens,
                                         std::uint32_t choice,
                                         std::int64_t position) {
  return static_cast<TokenId>(prompt_tokens * 1000 + choice * 500 + position);
}

}  // namespace heddle::twin
