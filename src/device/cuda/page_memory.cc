#include "device/cuda/page_memory.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/cuda_values.h"

namespace heddle::device {

Result<std::unique_ptr<PageMemory>> PageMemory::create(CudaContext& context,
                                                       std::size_t page_bytes,
                                                       std::uint64_t page_count,
                                                       std::span<const PageId> present) {
  HEDDLE_CHECK(page_bytes > 0 && page_count > 0);
  std::unique_ptr<PageMemory> memory(new PageMemory(context, page_bytes));
  context.make_current();
  if (auto reserved = memory->reserve(page_count); !reserved) {
    return reserved.error();
  }
  if (auto taken = memory->take(present); !taken) {
    return taken.error();
  }
  return memory;
}

Result<void> PageMemory::reserve(std::uint64_t page_count) {
  auto reserved = context_.check(
      "reserve addresses for its memory: cuMemAddressReserve",
      context_.api().cuMemAddressReserve(&base_, page_count * page_bytes_, page_bytes_, 0, 0));
  if (!reserved) {
    base_ = 0;
    return reserved;
  }
  handles_.resize(page_count);
  return {};
}

/// Makes a page and maps it where it belongs, without access.
Result<void> PageMemory::create_page(PageId page) {
  const DriverApi& api = context_.api();
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.requestedHandleTypes =
      context_.attribute(kAttributePosixDescriptors) != 0 ? kHandlePosixDescriptor : 0;
  properties.location = {.type = kLocationDevice, .id = context_.handle()};
  CUmemGenericAllocationHandle handle = 0;
  CUresult status = api.cuMemCreate(&handle, page_bytes_, &properties, 0);
  if (status != kCudaSuccess) {
    return context_.failure("cuMemCreate", status);
  }
  status = api.cuMemMap(address(page.value()), page_bytes_, 0, handle, 0);
  if (status != kCudaSuccess) {
    (void)api.cuMemRelease(handle);
    return context_.failure("cuMemMap", status);
  }
  handles_[page.value()] = handle;
  return {};
}

void PageMemory::drop(PageId page) {
  const DriverApi& api = context_.api();
  (void)api.cuMemUnmap(address(page.value()), page_bytes_);
  (void)api.cuMemRelease(*handles_[page.value()]);
  handles_[page.value()].reset();
}

Result<void> PageMemory::take(std::span<const PageId> pages) {
  context_.make_current();
  std::size_t done = 0;
  Result<void> taken;
  for (const PageId page : pages) {
    HEDDLE_CHECK(page.value() < page_count() && !handles_[page.value()]);
    taken = create_page(page);
    if (!taken) {
      taken = Error{taken.error().code,
                    "take " + whole_mib(pages.size() * page_bytes_) + " of its memory, of which " +
                        whole_mib(done * page_bytes_) + " could be had: " + taken.error().message};
      break;
    }
    ++done;
  }
  // Access is what takes the time: once for each run of neighbours.
  for (std::size_t first = 0; taken && first < pages.size();) {
    std::size_t end = first + 1;
    while (end < pages.size() && pages[end].value() == pages[end - 1].value() + 1) {
      ++end;
    }
    taken = set_access(address(pages[first].value()), end - first, Access::kReadWrite);
    first = end;
  }
  if (!taken) {
    for (const PageId page : pages.first(done)) {
      drop(page);
    }
  }
  return taken;
}

void PageMemory::give_back(std::span<const PageId> pages) {
  context_.make_current();
  for (const PageId page : pages) {
    HEDDLE_CHECK(page.value() < page_count() && handles_[page.value()]);
    drop(page);
  }
}

PageMemory::~PageMemory() {
  context_.make_current();
  for (std::uint64_t page = 0; page < handles_.size(); ++page) {
    if (handles_[page]) {
      drop(PageId(page));
    }
  }
  if (base_ != 0) {
    (void)context_.api().cuMemAddressFree(base_, handles_.size() * page_bytes_);
  }
}

Result<void> PageMemory::map(CUdeviceptr at,
                             std::span<const PageId> pages,
                             Access access,
                             std::vector<std::uint64_t>& left) {
  const DriverApi& api = context_.api();
  context_.make_current();
  Result<void> outcome;
  std::uint64_t done = 0;
  for (const PageId page : pages) {
    HEDDLE_CHECK(page.value() < page_count() && handles_[page.value()]);
    outcome = context_.check(
        "map " + std::to_string(pages.size()) + " pages, " + std::to_string(done) +
            " of which were mapped: cuMemMap",
        api.cuMemMap(at + done * page_bytes_, page_bytes_, 0, *handles_[page.value()], 0));
    if (!outcome) {
      break;
    }
    ++done;
  }
  if (outcome) {
    outcome = set_access(at, done, access);
  }
  if (!outcome) {
    left = unmap(at, done);
  }
  return outcome;
}

std::vector<std::uint64_t> PageMemory::unmap(CUdeviceptr at, std::uint64_t pages) {
  std::vector<std::uint64_t> left;
  if (pages == 0) {
    return left;
  }
  context_.make_current();
  const DriverApi& api = context_.api();
  const auto unmapped = context_.check("unmap " + std::to_string(pages) + " pages: cuMemUnmap",
                                       api.cuMemUnmap(at, pages * page_bytes_));
  if (unmapped || context_.lost()) {
    return left;  // Of a lost device nothing is mapped any more that anybody could use.
  }
  for (std::uint64_t page = 0; page < pages; ++page) {
    if (api.cuMemUnmap(at + page * page_bytes_, page_bytes_) != kCudaSuccess) {
      left.push_back(page);
    }
  }
  log::warning("the driver refuses to unmap several pages at once",
               {{"why", unmapped.error().message}, {"pages", pages}, {"left", left.size()}});
  return left;
}

Result<void> PageMemory::set_access(CUdeviceptr at, std::uint64_t pages, Access access) {
  if (pages == 0) {
    return {};
  }
  const auto set = [&](int flags) {
    const CUmemAccessDesc rights{.location = {.type = kLocationDevice, .id = context_.handle()},
                                 .flags = flags};
    return context_.api().cuMemSetAccess(at, pages * page_bytes_, &rights, 1);
  };
  const bool read_only = access == Access::kRead && can_protect();
  CUresult status = set(read_only ? kAccessRead : kAccessReadWrite);
  // Whether memory can be read-only is no attribute of a device: it says so when it is asked to.
  if (read_only && (status == kCudaNotSupported || status == kCudaInvalidValue)) {
    status = set(kAccessReadWrite);
    can_protect_.store(status != kCudaSuccess);
  }
  return context_.check("allow access to " + std::to_string(pages) + " pages: cuMemSetAccess",
                        status);
}

}  // namespace heddle::device
