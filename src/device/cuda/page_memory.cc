#include "device/cuda/page_memory.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace heddle::device {
namespace {

std::string mib(std::uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

}  // namespace

Result<std::unique_ptr<PageMemory>> PageMemory::create(CudaContext& context,
                                                       std::size_t page_bytes,
                                                       std::uint64_t page_count) {
  HEDDLE_CHECK(page_bytes > 0 && page_count > 0);
  std::unique_ptr<PageMemory> memory(new PageMemory(context, page_bytes));
  context.make_current();
  if (auto created = memory->create_pages(page_count); !created) {
    return created.error();
  }
  if (auto mapped = memory->map_all(); !mapped) {
    return mapped.error();
  }
  if (auto tried = memory->try_protection(); !tried) {
    return tried.error();
  }
  return memory;
}

Result<void> PageMemory::create_pages(std::uint64_t page_count) {
  const bool exportable = context_.attribute(kAttributePosixDescriptors) != 0;
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.requestedHandleTypes = exportable ? kHandlePosixDescriptor : 0;
  properties.location = {.type = kLocationDevice, .id = context_.handle()};
  handles_.reserve(page_count);
  while (handles_.size() < page_count) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult status = context_.api().cuMemCreate(&handle, page_bytes_, &properties, 0);
    if (status != kCudaSuccess) {
      return context_.failure("take " + mib(page_count * page_bytes_) +
                                  " of its memory, of which " + mib(handles_.size() * page_bytes_) +
                                  " could be had: cuMemCreate",
                              status);
    }
    handles_.push_back(handle);
  }
  return {};
}

Result<void> PageMemory::map_all() {
  const DriverApi& api = context_.api();
  const std::size_t bytes = handles_.size() * page_bytes_;
  auto reserved = context_.check("reserve addresses for its memory: cuMemAddressReserve",
                                 api.cuMemAddressReserve(&base_, bytes, page_bytes_, 0, 0));
  if (!reserved) {
    base_ = 0;
    return reserved;
  }
  while (mapped_ < handles_.size()) {
    const CUresult status = api.cuMemMap(address(mapped_), page_bytes_, 0, handles_[mapped_], 0);
    if (status != kCudaSuccess) {
      return context_.failure("map its memory: cuMemMap", status);
    }
    ++mapped_;
  }
  return set_access(base_, mapped_, Access::kReadWrite);
}

/// Whether memory can be mapped read-only is no attribute of a device: it says so when asked to.
Result<void> PageMemory::try_protection() {
  const DriverApi& api = context_.api();
  CUdeviceptr at = 0;
  if (auto reserved = context_.check("reserve addresses: cuMemAddressReserve",
                                     api.cuMemAddressReserve(&at, page_bytes_, page_bytes_, 0, 0));
      !reserved) {
    return reserved;
  }
  const PageId page(0);
  auto mapped = map(at, {&page, 1}, Access::kRead);
  if (!mapped && !context_.lost()) {
    can_protect_ = false;
    mapped = map(at, {&page, 1}, Access::kRead);
  }
  if (mapped) {
    unmap(at, 1);
  }
  (void)api.cuMemAddressFree(at, page_bytes_);
  return mapped;
}

PageMemory::~PageMemory() {
  context_.make_current();
  const DriverApi& api = context_.api();
  if (mapped_ > 0) {
    (void)api.cuMemUnmap(base_, mapped_ * page_bytes_);
  }
  if (base_ != 0) {
    (void)api.cuMemAddressFree(base_, handles_.size() * page_bytes_);
  }
  for (const CUmemGenericAllocationHandle handle : handles_) {
    (void)api.cuMemRelease(handle);
  }
}

Result<void> PageMemory::map(CUdeviceptr at, std::span<const PageId> pages, Access access) {
  const DriverApi& api = context_.api();
  context_.make_current();
  Result<void> outcome;
  std::uint64_t done = 0;
  for (const PageId page : pages) {
    HEDDLE_CHECK(page.value() < page_count());
    outcome = context_.check(
        "map " + std::to_string(pages.size()) + " pages, " + std::to_string(done) +
            " of which were mapped: cuMemMap",
        api.cuMemMap(at + done * page_bytes_, page_bytes_, 0, handles_[page.value()], 0));
    if (!outcome) {
      break;
    }
    ++done;
  }
  if (outcome) {
    outcome = set_access(at, done, access);
  }
  if (!outcome) {
    unmap(at, done);
  }
  return outcome;
}

void PageMemory::unmap(CUdeviceptr at, std::uint64_t pages) {
  if (pages == 0) {
    return;
  }
  context_.make_current();
  const auto unmapped = context_.check("unmap " + std::to_string(pages) + " pages: cuMemUnmap",
                                       context_.api().cuMemUnmap(at, pages * page_bytes_));
  HEDDLE_CHECK(unmapped || context_.lost());
}

Result<void> PageMemory::set_access(CUdeviceptr at, std::uint64_t pages, Access access) {
  if (pages == 0) {
    return {};
  }
  const bool read_only = access == Access::kRead && can_protect_;
  const CUmemAccessDesc rights{.location = {.type = kLocationDevice, .id = context_.handle()},
                               .flags = read_only ? kAccessRead : kAccessReadWrite};
  return context_.check("allow access to " + std::to_string(pages) + " pages: cuMemSetAccess",
                        context_.api().cuMemSetAccess(at, pages * page_bytes_, &rights, 1));
}

}  // namespace heddle::device
