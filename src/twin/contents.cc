#include "twin/contents.h"

#include "base/check.h"

namespace heddle::twin {

std::size_t Contents::touched(std::uint64_t bytes) const {
  return (bytes + page_bytes_ - 1) / page_bytes_;
}

// A page that was there in part is written again as it is completed.

void Contents::read_image(ModelId model,
                          std::span<const PageId> pages,
                          std::uint64_t before,
                          std::uint64_t bytes) {
  for (std::size_t part = before / page_bytes_; part < touched(bytes); ++part) {
    page(pages[part]) = {.model = model, .part = part};
  }
}

void Contents::copy_image(std::span<const PageId> source,
                          std::span<const PageId> window,
                          std::uint64_t before,
                          std::uint64_t bytes) {
  for (std::size_t part = before / page_bytes_; part < touched(bytes); ++part) {
    page(window[part]) = page(source[part]);
  }
}

void Contents::use_image(ModelId model, std::span<const PageId> window, std::uint64_t bytes) const {
  for (std::size_t part = 0; part < touched(bytes); ++part) {
    const Page& found = page(window[part]);
    HEDDLE_CHECK(!found.kv && found.model == model && found.part == part);
  }
}

void Contents::begin_kv(Life life, std::span<const PageId> pages) {
  for (const PageId id : pages) {
    page(id) = {.kv = life};
  }
}

void Contents::write_kv(Life life, memory::KvBlockRef block, std::uint64_t mark) {
  Page& written = page(block.page);
  HEDDLE_CHECK(written.kv == life);
  if (written.marks.size() <= block.slot) {
    written.marks.resize(block.slot + 1);
  }
  written.marks[block.slot] = mark;
}

void Contents::use_kv(Life life, memory::KvBlockRef block, std::uint64_t mark) const {
  const Page& found = page(block.page);
  HEDDLE_CHECK(found.kv == life);
  HEDDLE_CHECK(found.marks.at(block.slot) == mark);
}

}  // namespace heddle::twin
