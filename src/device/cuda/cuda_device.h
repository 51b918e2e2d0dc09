#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/arena.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/mapped_ranges.h"
#include "device/cuda/module_image.h"
#include "device/cuda/page_memory.h"
#include "device/cuda/pinned_memory.h"
#include "device/device.h"

namespace heddle::device {

struct CudaDeviceOptions {
  int ordinal = 0;             ///< As the driver counts.
  std::size_t page_bytes = 0;  ///< A multiple of the device's own, usually 2 MiB; 0 for that.
  std::uint64_t bytes = 0;     ///< For pages, rounded down; 0: `fraction` of what is free.
  /// Of the pages, those that are there from the start, the others being given back; none: all.
  std::optional<std::vector<PageId>> only{};
  double fraction = 0.85;  ///< What is left is for contexts, workspaces and graphs.
  std::size_t pin_bytes_max = kPinBytesMax;  ///< Of the host's memory, registered at once.
  bool records = true;                       ///< Whether streams record; to measure what that does.
  /// Whether kernels may begin before those before them have ended, where the GPU can (compute
  /// capability 9.0): HEDDLE_KERNEL has them wait for what they need. To measure what that does.
  bool overlaps = true;
  std::shared_ptr<const Driver> driver{};  ///< Null: Driver::open().
};

/// A GPU. Its pages are physical memory that was taken when it was made; windows are mapped by
/// handle with the driver's virtual memory management. Streams are CudaStreams. Buffers, streams,
/// graphs and ranges do not outlive it.
///
/// Once an error has lost the device (CudaContext), every call and every synchronize() reports that
/// error as kUnavailable; only a new process can use the GPU again.
class CudaDevice final : public Device {
 public:
  /// Takes the memory. `host` is the arena of the host, which is registered as pinned memory for
  /// the device's life; without it the device has no host pages. kNotFound: no driver or no such
  /// GPU. kFailedPrecondition: the GPU lacks virtual memory management. kInvalidArgument: a page
  /// size it cannot have. kResourceExhausted: too little free memory, with what is free and in all.
  static Result<std::unique_ptr<CudaDevice>> create(const CudaDeviceOptions& options,
                                                    std::optional<Arena> host = std::nullopt);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] const Properties& properties() const override { return properties_; }
  [[nodiscard]] std::byte* page_address(PageId page) const override;
  [[nodiscard]] std::byte* host_page_address(PageId page) const override;
  void give_back(std::span<const PageId> pages) override;
  Result<void> take_again(std::span<const PageId> pages) override;
  Result<Buffer> allocate(Place place, std::size_t bytes) override;
  Result<Buffer> pin(std::byte* memory, std::size_t bytes) override;
  Result<AddressRange> reserve(std::size_t bytes) override;
  void release(AddressRange range) override;
  Result<void> map(AddressRange range,
                   std::size_t offset,
                   std::span<const PageId> pages,
                   Access access) override;
  void unmap(AddressRange range, std::size_t offset, std::size_t bytes) override;
  [[nodiscard]] bool is_linked_to(int peer) const override;
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override;
  Result<Buffer> attach_shared(const Descriptor& shared, std::size_t bytes) override;
  Result<Descriptor> map_new_shared(AddressRange range, std::size_t offset) override;
  Result<void> map_shared(AddressRange range,
                          std::size_t offset,
                          const Descriptor& shared) override;
  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Stream>> create_background_stream() override;

  [[nodiscard]] CudaContext& context() const { return *context_; }
  /// Whether streams launch kernels so that they overlap.
  [[nodiscard]] bool overlaps() const { return overlaps_; }
  /// False once the GPU has refused to map memory read-only: Access::kRead does not protect then.
  [[nodiscard]] bool protects() const { return pages_->can_protect(); }

  /// The kernel, ready to be launched with that much dynamic shared memory. Loads its image, all
  /// kernels of it, when it is first asked for one; that is slow and must not happen while a stream
  /// records. kFailedPrecondition, with the image's note: this build has no kernels, or not that.
  Result<CUfunction> function(const KernelId& kernel, std::uint32_t shared_bytes);

 private:
  struct Function {
    CUfunction handle = nullptr;
    std::uint32_t shared_bytes_max = 0;
  };
  explicit CudaDevice(std::unique_ptr<CudaContext> context);
  Result<void> take_pages(const CudaDeviceOptions& options);
  Result<void> pin_host(Arena host, std::size_t bytes_max);
  Result<void> make_service_stream();
  Result<void> clear(CUdeviceptr at, std::size_t bytes) const;
  Result<Buffer> allocate_on_host(std::size_t bytes);
  using Modules = std::vector<CUmodule>;  ///< One for each part of an image.
  Result<const Modules*> modules_of(const ModuleImage& image);
  Result<void> load_included(const ModuleImage& image, Modules& loaded);
  /// Those of a folder's files (image_folder()) instead.
  Result<void> load_files(const ModuleImage& image, const std::string& folder, Modules& loaded);
  /// `from`: what it is, for errors.
  Result<CUmodule> load(const std::string& from, const std::byte* part);
  Result<CUfunction> find(const KernelId& kernel);
  /// Logs, once, which of an image's architectures the driver took.
  void tell_code_of(const KernelId& kernel, CUfunction found);
  Result<std::unique_ptr<Stream>> create_stream_of(int priority);

  std::unique_ptr<CudaContext> context_;
  Properties properties_{};
  std::optional<Arena> host_{};
  std::optional<PinnedMemory> pinned_{};  ///< The arena.
  std::unique_ptr<PageMemory> pages_{};
  std::unique_ptr<MappedRanges> ranges_{};
  CUstream service_stream_ = nullptr;  ///< For clearing buffers.
  bool overlaps_ = false;
  int priority_low_ = 0;  ///< The greater number.
  int priority_high_ = 0;

  std::mutex functions_mutex_{};  ///< Of what follows.
  std::map<const ModuleImage*, Modules> modules_{};
  std::map<const char*, Function> functions_{};
  bool code_told_ = false;
};

}  // namespace heddle::device
