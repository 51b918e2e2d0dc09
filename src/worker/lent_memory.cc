#include "worker/lent_memory.h"

#include <string>

#include "base/check.h"

namespace heddle::worker {

Result<std::unique_ptr<LentMemory>> LentMemory::create(device::Device& device,
                                                       std::uint64_t page_count) {
  const auto range = device.reserve(page_count * device.properties().page_bytes);
  if (!range) {
    return range.error();
  }
  return std::unique_ptr<LentMemory>(new LentMemory(device, *range));
}

LentMemory::~LentMemory() {
  device_.release(range_);
}

std::uint64_t LentMemory::page_count() const {
  return range_.bytes / device_.properties().page_bytes;
}

Result<std::size_t> LentMemory::offset_of(PageId page) const {
  if (page.value() >= page_count() || pages_.contains(page)) {
    return Error{Code::kInvalidArgument,
                 "map lent page " + std::to_string(page.value()) + ": want one below " +
                     std::to_string(page_count()) + " that is not mapped yet"};
  }
  return page.value() * device_.properties().page_bytes;
}

Result<Descriptor> LentMemory::make(PageId page) {
  const auto offset = offset_of(page);
  if (!offset) {
    return offset.error();
  }
  auto made = device_.map_new_shared(range_, *offset);
  if (made) {
    pages_.insert(page);
  }
  return made;
}

Result<void> LentMemory::map(PageId page, const Descriptor& memory) {
  const auto offset = offset_of(page);
  if (!offset) {
    return offset.error();
  }
  const auto mapped = device_.map_shared(range_, *offset, memory);
  if (mapped) {
    pages_.insert(page);
  }
  return mapped;
}

void LentMemory::drop(PageId page) {
  HEDDLE_CHECK(pages_.erase(page) == 1);
  const std::size_t bytes = device_.properties().page_bytes;
  device_.unmap(range_, page.value() * bytes, bytes);
}

}  // namespace heddle::worker
