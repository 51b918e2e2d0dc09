#include "device/cuda/mapped_ranges.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "device/cuda/cuda_values.h"

namespace heddle::device {

MappedRanges::Part MappedRanges::part_of(AddressRange range,
                                         std::size_t offset,
                                         std::size_t pages) const {
  const std::size_t page_bytes = pages_.page_bytes();
  HEDDLE_CHECK(offset % page_bytes == 0 && offset <= range.bytes);
  HEDDLE_CHECK(pages <= (range.bytes - offset) / page_bytes);
  return {.range = range, .first = offset / page_bytes, .count = pages};
}

CUdeviceptr MappedRanges::address(const Part& part) const {
  return device_address(part.range.base) + part.first * pages_.page_bytes();
}

/// With the mutex.
std::span<MappedRanges::At> MappedRanges::at(const Part& part) {
  const auto found = ranges_.find(part.range.base);
  HEDDLE_CHECK(found != ranges_.end() &&
               found->second.size() * pages_.page_bytes() == part.range.bytes);
  return std::span(found->second).subspan(part.first, part.count);
}

Result<AddressRange> MappedRanges::reserve(std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0 && bytes % pages_.page_bytes() == 0);
  if (auto lost = context_.lost()) {
    return *lost;
  }
  context_.make_current();
  CUdeviceptr base = 0;
  const CUresult status =
      context_.api().cuMemAddressReserve(&base, bytes, pages_.page_bytes(), 0, 0);
  if (status != kCudaSuccess) {
    Error error = context_.failure(
        "reserve " + std::to_string(bytes) + " bytes of addresses: cuMemAddressReserve", status);
    if (!context_.lost()) {
      error.code = Code::kResourceExhausted;  // The driver has several words for it.
    }
    return error;
  }
  const std::lock_guard lock(mutex_);
  ranges_.emplace(device_pointer(base), std::vector<At>(bytes / pages_.page_bytes()));
  return AddressRange{.base = device_pointer(base), .bytes = bytes};
}

void MappedRanges::release(AddressRange range) {
  unmap(range, 0, range.bytes);
  {
    const std::lock_guard lock(mutex_);
    ranges_.erase(range.base);
  }
  context_.make_current();
  (void)context_.api().cuMemAddressFree(device_address(range.base), range.bytes);
}

/// Makes the part this call's own, with nothing mapped: what is stuck there is tried once more.
Result<void> MappedRanges::occupy(const Part& part) {
  std::vector<std::uint64_t> stuck;
  {
    const std::lock_guard lock(mutex_);
    const std::span<At> all = at(part);
    for (std::size_t i = 0; i < all.size(); ++i) {
      HEDDLE_CHECK(all[i] == At::kNothing || all[i] == At::kStuck);
      if (all[i] == At::kStuck) {
        stuck.push_back(i);
      }
      all[i] = At::kBusy;
    }
  }
  std::vector<std::uint64_t> left;
  for (const std::uint64_t page : stuck) {
    if (!pages_.unmap(address(part) + page * pages_.page_bytes(), 1).empty()) {
      left.push_back(page);
    }
  }
  if (left.empty()) {
    return {};
  }
  settle(part, At::kNothing, left);
  return Error{.code = Code::kUnavailable,
               .message = context_.label() + ": map where " + std::to_string(left.size()) +
                          " pages are that the driver refuses to unmap"};
}

void MappedRanges::settle(const Part& part, At what, std::span<const std::uint64_t> stuck) {
  const std::lock_guard lock(mutex_);
  const std::span<At> all = at(part);
  std::ranges::fill(all, what);
  for (const std::uint64_t page : stuck) {
    all[page] = At::kStuck;
  }
}

Result<void> MappedRanges::map(AddressRange range,
                               std::size_t offset,
                               std::span<const PageId> pages,
                               Access access) {
  const Part part = part_of(range, offset, pages.size());
  if (auto lost = context_.lost()) {
    return *lost;
  }
  if (auto free = occupy(part); !free) {
    return free;
  }
  std::vector<std::uint64_t> left;
  const auto done = pages_.map(address(part), pages, access, left);
  settle(part, done ? At::kMapped : At::kNothing, left);
  return done;
}

Result<void> MappedRanges::map_page(AddressRange range,
                                    std::size_t offset,
                                    const std::function<Result<void>(CUdeviceptr at)>& map) {
  const Part part = part_of(range, offset, 1);
  if (auto free = occupy(part); !free) {
    return free;
  }
  const auto done = map(address(part));
  settle(part, done ? At::kMapped : At::kNothing);
  return done;
}

/// In as few calls as can be.
void MappedRanges::unmap(AddressRange range, std::size_t offset, std::size_t bytes) {
  HEDDLE_CHECK(bytes % pages_.page_bytes() == 0);
  const Part part = part_of(range, offset, bytes / pages_.page_bytes());
  std::vector<Part> runs;
  {
    const std::lock_guard lock(mutex_);
    const std::span<At> all = at(part);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != At::kMapped) {
        continue;
      }
      if (runs.empty() || runs.back().first + runs.back().count != part.first + i) {
        runs.push_back({.range = range, .first = part.first + i, .count = 0});
      }
      ++runs.back().count;
      all[i] = At::kBusy;
    }
  }
  for (const Part& run : runs) {
    unmap_run(run);
  }
}

void MappedRanges::unmap_run(const Part& run) {
  const auto left = pages_.unmap(address(run), run.count);
  settle(run, At::kNothing, left);
}

}  // namespace heddle::device
