#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/cuda_values.h"
#include "device/cuda/image_file.h"
#include "device/cuda/nvml.h"
#include "device/cuda/shared_memory.h"

namespace heddle::device {
namespace {

/// Dynamic shared memory that every kernel may have without being told so.
constexpr std::uint32_t kSharedBytesUnasked = 48U << 10U;

/// The size of pages on the device that `asked` (0: any) stands for.
Result<std::size_t> page_bytes_on(CudaContext& context, std::size_t asked) {
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  properties.location = {.type = kLocationDevice, .id = context.handle()};
  std::size_t granularity = 0;
  auto found = context.check(
      "ask for its page size: cuMemGetAllocationGranularity",
      context.api().cuMemGetAllocationGranularity(&granularity, &properties, kGranularityMinimum));
  if (!found) {
    return found.error();
  }
  const std::size_t page_bytes = asked == 0 ? granularity : asked;
  if (page_bytes % granularity != 0 || !std::has_single_bit(page_bytes)) {
    return Error{Code::kInvalidArgument,
                 context.label() + ": pages of " + std::to_string(page_bytes) +
                     " bytes: must be a power of two, at least " + std::to_string(granularity)};
  }
  return page_bytes;
}

/// How many pages to take by the options, of what is free now.
Result<std::uint64_t> page_count_on(CudaContext& context,
                                    const CudaDeviceOptions& options,
                                    std::size_t page_bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  auto found = context.check("ask for its free memory: cuMemGetInfo",
                             context.api().cuMemGetInfo_v2(&free, &total));
  if (!found) {
    return found.error();
  }
  const std::uint64_t wanted =
      options.bytes > 0 ? options.bytes
                        : static_cast<std::uint64_t>(options.fraction * static_cast<double>(free));
  const std::uint64_t count = wanted / page_bytes;
  const std::uint64_t needed = options.only ? options.only->size() * page_bytes : wanted;
  if (count == 0 || needed > free) {
    const std::string others = name_others(context.uuid());
    return Error{Code::kResourceExhausted,
                 context.label() + ": " + whole_mib(needed) + " for pages of " +
                     whole_mib(page_bytes) + " cannot be had: of its " + whole_mib(total) + ", " +
                     whole_mib(free) + " are free, and others hold " + whole_mib(total - free) +
                     (others.empty() ? "" : ": " + others)};
  }
  return count;
}

}  // namespace

CudaDevice::CudaDevice(std::unique_ptr<CudaContext> context) : context_(std::move(context)) {}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(const CudaDeviceOptions& options,
                                                       std::optional<Arena> host) {
  std::shared_ptr<const Driver> driver = options.driver;
  if (driver == nullptr) {
    auto opened = Driver::open();
    if (!opened) {
      return opened.error();
    }
    driver = *opened;
  }
  auto context = CudaContext::create(std::move(driver), options.ordinal);
  if (!context) {
    return context.error();
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(*context)));
  if (device->context_->attribute(kAttributeVirtualMemory) == 0 ||
      device->context_->attribute(kAttributeUnifiedAddressing) == 0) {
    return Error{Code::kFailedPrecondition,
                 device->context_->label() + " has no virtual memory management, which is needed"};
  }
  if (auto taken = device->take_pages(options); !taken) {
    return taken.error();
  }
  if (auto made = device->make_service_stream(); !made) {
    return made.error();
  }
  if (host) {
    if (auto pinned = device->pin_host(std::move(*host), options.pin_bytes_max); !pinned) {
      return pinned.error();
    }
  }
  return device;
}

Result<void> CudaDevice::take_pages(const CudaDeviceOptions& options) {
  const auto page_bytes = page_bytes_on(*context_, options.page_bytes);
  if (!page_bytes) {
    return page_bytes.error();
  }
  const auto count = page_count_on(*context_, options, *page_bytes);
  if (!count) {
    return count.error();
  }
  std::vector<PageId> all;
  for (std::uint64_t page = 0; page < *count; ++page) {
    all.emplace_back(page);
  }
  auto pages = PageMemory::create(*context_, *page_bytes, *count, options.only.value_or(all));
  if (!pages) {
    return pages.error();
  }
  pages_ = std::move(*pages);
  constexpr int kHopper = 9;
  overlaps_ = options.overlaps && context_->attribute(kAttributeComputeCapabilityMajor) >= kHopper;
  ranges_ = std::make_unique<MappedRanges>(*context_, *pages_);
  properties_ = {.kind = Kind::kCuda,
                 .name = context_->label(),
                 .page_bytes = *page_bytes,
                 .page_count = *count,
                 .records = options.records,
                 .asynchronous = true,
                 .flags = context_->attribute(kAttributeStreamMemory64) != 0 &&
                          context_->attribute(kAttributeHostPointerForRegistered) != 0};
  return {};
}

void CudaDevice::give_back(std::span<const PageId> pages) {
  pages_->give_back(pages);
}

Result<void> CudaDevice::take_again(std::span<const PageId> pages) {
  return pages_->take(pages);
}

Result<void> CudaDevice::pin_host(Arena host, std::size_t bytes_max) {
  host_.emplace(std::move(host));
  auto pinned = PinnedMemory::create(*context_, host_->base(), host_->bytes(), bytes_max);
  if (!pinned) {
    return pinned.error();
  }
  pinned_.emplace(std::move(*pinned));
  return {};
}

Result<void> CudaDevice::make_service_stream() {
  const DriverApi& api = context_->api();
  (void)api.cuCtxGetStreamPriorityRange(&priority_low_, &priority_high_);
  return context_->check(
      "create a stream: cuStreamCreateWithPriority",
      api.cuStreamCreateWithPriority(&service_stream_, kStreamNonBlocking, priority_low_));
}

CudaDevice::~CudaDevice() {
  context_->make_current();
  const DriverApi& api = context_->api();
  for (const auto& [image, modules] : modules_) {
    for (const CUmodule module : modules) {
      (void)api.cuModuleUnload(module);
    }
  }
  pinned_.reset();
  if (service_stream_ != nullptr) {
    (void)api.cuStreamDestroy_v2(service_stream_);
  }
}

std::byte* CudaDevice::page_address(PageId page) const {
  HEDDLE_DCHECK(page.value() < properties_.page_count);
  return device_pointer(pages_->address(page.value()));
}

std::byte* CudaDevice::host_page_address(PageId page) const {
  HEDDLE_CHECK(host_ && page.value() < host_->page_count());
  return host_->base() + page.value() * host_->page_bytes();
}

Result<Buffer> CudaDevice::allocate(Place place, std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0);
  context_->make_current();
  if (place == Place::kHost) {
    return allocate_on_host(bytes);
  }
  CUdeviceptr at = 0;
  const DriverApi& api = context_->api();
  if (auto had = context_->check("allocate " + std::to_string(bytes) + " bytes: cuMemAlloc",
                                 api.cuMemAlloc_v2(&at, bytes));
      !had) {
    return had.error();
  }
  Buffer buffer(device_pointer(at), bytes, [this](std::byte* data) {
    context_->make_current();
    (void)context_->api().cuMemFree_v2(device_address(data));
  });
  if (auto cleared = clear(at, bytes); !cleared) {
    return cleared.error();
  }
  return buffer;
}

Result<Buffer> CudaDevice::allocate_on_host(std::size_t bytes) {
  void* memory = nullptr;
  if (auto had = context_->check(
          "allocate " + std::to_string(bytes) + " bytes of pinned memory: cuMemHostAlloc",
          context_->api().cuMemHostAlloc(&memory, bytes, kHostPortable | kHostDeviceMap));
      !had) {
    return had.error();
  }
  std::memset(memory, 0, bytes);
  return Buffer(static_cast<std::byte*>(memory), bytes, [this](std::byte* data) {
    context_->make_current();
    (void)context_->api().cuMemFreeHost(data);
  });
}

Result<Buffer> CudaDevice::pin(std::byte* memory, std::size_t bytes) {
  auto pinned = PinnedMemory::create(*context_, memory, bytes, kPinBytesMax);
  if (!pinned) {
    return pinned.error();
  }
  // What ends a buffer is copied about: it holds what is pinned by a pointer.
  const auto held = std::make_shared<std::optional<PinnedMemory>>(std::move(*pinned));
  return Buffer(memory, bytes, [held](std::byte*) { held->reset(); });
}

Result<void> CudaDevice::clear(CUdeviceptr at, std::size_t bytes) const {
  const DriverApi& api = context_->api();
  CUresult status = api.cuMemsetD8Async(at, 0, bytes, service_stream_);
  if (status == kCudaSuccess) {
    status = api.cuStreamSynchronize(service_stream_);
  }
  return context_->check("clear a buffer: cuMemsetD8Async", status);
}

bool CudaDevice::is_linked_to(int peer) const {
  return device::is_linked_to(*context_, peer);
}

Result<SharedBuffer> CudaDevice::allocate_shared(std::size_t bytes) {
  const std::size_t page = properties_.page_bytes;
  return device::allocate_shared(*context_, (bytes + page - 1) / page * page);
}

Result<Buffer> CudaDevice::attach_shared(const Descriptor& shared, std::size_t bytes) {
  return device::attach_shared(*context_, shared, bytes);
}

Result<Descriptor> CudaDevice::map_new_shared(AddressRange range, std::size_t offset) {
  Result<Descriptor> shared = Error{};
  const auto done = ranges_->map_page(range, offset, [&](CUdeviceptr at) -> Result<void> {
    shared = device::map_new_shared(*context_, at, properties_.page_bytes);
    return shared ? Result<void>() : shared.error();
  });
  return done ? std::move(shared) : done.error();
}

Result<void> CudaDevice::map_shared(AddressRange range,
                                    std::size_t offset,
                                    const Descriptor& shared) {
  return ranges_->map_page(range, offset, [&](CUdeviceptr at) {
    return device::map_shared(*context_, at, properties_.page_bytes, shared);
  });
}

Result<AddressRange> CudaDevice::reserve(std::size_t bytes) {
  return ranges_->reserve(bytes);
}

void CudaDevice::release(AddressRange range) {
  ranges_->release(range);
}

Result<void> CudaDevice::map(AddressRange range,
                             std::size_t offset,
                             std::span<const PageId> pages,
                             Access access) {
  return ranges_->map(range, offset, pages, access);
}

void CudaDevice::unmap(AddressRange range, std::size_t offset, std::size_t bytes) {
  ranges_->unmap(range, offset, bytes);
}

Result<std::unique_ptr<Stream>> CudaDevice::create_stream() {
  return create_stream_of(priority_high_);
}

Result<std::unique_ptr<Stream>> CudaDevice::create_background_stream() {
  return create_stream_of(priority_low_);
}

Result<std::unique_ptr<Stream>> CudaDevice::create_stream_of(int priority) {
  auto stream = CudaStream::create(*this, priority);
  if (!stream) {
    return stream.error();
  }
  return std::unique_ptr<Stream>(std::move(*stream));
}

Result<CUfunction> CudaDevice::function(const KernelId& kernel, std::uint32_t shared_bytes) {
  const std::lock_guard lock(functions_mutex_);
  Function& function = functions_[kernel.name];
  context_->make_current();
  if (function.handle == nullptr) {
    const auto found = find(kernel);
    if (!found) {
      return found.error();
    }
    function.handle = *found;
  }
  if (shared_bytes > kSharedBytesUnasked && shared_bytes > function.shared_bytes_max) {
    auto allowed = context_->check(
        std::string("give the kernel ") + kernel.name + " " + std::to_string(shared_bytes) +
            " bytes of shared memory",
        context_->api().cuFuncSetAttribute(
            function.handle, kFunctionDynamicSharedBytesMax, static_cast<int>(shared_bytes)));
    if (!allowed) {
      return allowed.error();
    }
    function.shared_bytes_max = shared_bytes;
  }
  return function.handle;
}

Result<CUfunction> CudaDevice::find(const KernelId& kernel) {
  const auto modules = modules_of(*kernel.module);
  if (!modules) {
    Error error = modules.error();
    error.message = std::string("find the kernel ") + kernel.name + ": " + error.message;
    return error;
  }
  CUresult status = kCudaNotFound;
  for (const CUmodule module : **modules) {
    CUfunction found = nullptr;
    status = context_->api().cuModuleGetFunction(&found, module, kernel.name);
    if (status == kCudaSuccess) {
      tell_code_of(kernel, found);
      return found;
    }
  }
  Error error = context_->failure(
      std::string("find the kernel ") + kernel.name + " (" + kernel.module->note + ")", status);
  if (!context_->lost()) {
    error.code = Code::kFailedPrecondition;
  }
  return error;
}

void CudaDevice::tell_code_of(const KernelId& kernel, CUfunction found) {
  int version = 0;
  if (!code_told_ &&
      context_->api().cuFuncGetAttribute(&version, kFunctionBinaryVersion, found) == kCudaSuccess) {
    code_told_ = true;
    log::info("CUDA kernels are loaded",
              {{"made_by", kernel.module->note}, {"code_for", "sm_" + std::to_string(version)}});
  }
}

Result<const CudaDevice::Modules*> CudaDevice::modules_of(const ModuleImage& image) {
  if (const auto found = modules_.find(&image); found != modules_.end()) {
    return &found->second;
  }
  const std::optional<std::string> folder = image_folder();
  Modules loaded;
  const Result<void> done =
      folder ? load_files(image, *folder, loaded) : load_included(image, loaded);
  if (!done) {
    for (const CUmodule each : loaded) {
      (void)context_->api().cuModuleUnload(each);
    }
    return done.error();
  }
  return &modules_.emplace(&image, std::move(loaded)).first->second;
}

Result<void> CudaDevice::load_included(const ModuleImage& image, Modules& loaded) {
  // Of a build without kernels the driver itself says that there are none.
  static constexpr std::array<std::byte, 64> kNothing{};
  for (std::size_t i = 0; i < std::max<std::size_t>(image.parts.size(), 1); ++i) {
    auto module = load(image.note, image.parts.empty() ? kNothing.data() : image.parts[i].data());
    if (!module) {
      return module.error();
    }
    loaded.push_back(*module);
  }
  return {};
}

Result<void> CudaDevice::load_files(const ModuleImage& image,
                                    const std::string& folder,
                                    Modules& loaded) {
  for (const char* const name : image.names) {
    const std::string path = image_file(folder, name);
    const Result<std::vector<std::byte>> bytes = read_image(path);
    if (!bytes) {
      Error error = bytes.error();
      error.message = "HEDDLE_CUDA_IMAGES names a folder for kernels: " + error.message;
      return error;
    }
    auto module = load(path, bytes->data());
    if (!module) {
      return module.error();
    }
    loaded.push_back(*module);
    log::warning("kernels are a file's, not the program's", {{"file", path}});
  }
  return {};
}

/// Loads all kernels of the part at once. The driver would otherwise load each at its first launch,
/// waiting for the device, and with it for a kernel that waits for what comes later.
Result<CUmodule> CudaDevice::load(const std::string& from, const std::byte* part) {
  const DriverApi& api = context_->api();
  CUmodule loaded = nullptr;
  if (const CUresult status = api.cuModuleLoadData(&loaded, part); status != kCudaSuccess) {
    Error error = context_->failure("load CUDA kernels (" + from + "): cuModuleLoadData", status);
    if (!context_->lost()) {
      error.code = Code::kFailedPrecondition;
    }
    return error;
  }
  unsigned count = 0;
  if (api.cuModuleGetFunctionCount(&count, loaded) == kCudaSuccess && count > 0) {
    std::vector<CUfunction> functions(count);
    if (api.cuModuleEnumerateFunctions(functions.data(), count, loaded) == kCudaSuccess) {
      for (const CUfunction each : functions) {
        (void)api.cuFuncLoad(each);  // Only when it is done depends on it.
      }
    }
  }
  return loaded;
}

}  // namespace heddle::device
