#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "device/cuda/driver_api.h"
#include "device/cuda/module_image.h"
#include "device/device.h"

namespace heddle::device {

class CudaContext;
class CudaDevice;

/// Work that a CudaStream recorded, as the driver's executable graph.
class CudaGraph final : public Graph {
 public:
  /// Takes `handle` over, which is of so many operations.
  CudaGraph(CudaContext& context, CUgraphExec handle, std::size_t operations)
      : context_(context), handle_(handle), operations_(operations) {}
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  [[nodiscard]] CUgraphExec handle() const { return handle_; }
  [[nodiscard]] std::uint64_t bytes() const override { return operations_ * kRecordedBytes; }

 private:
  CudaContext& context_;
  CUgraphExec handle_;
  std::size_t operations_;
};

/// A stream of a GPU. Enqueuing neither waits nor reports: the first call that fails is kept, what
/// comes after it is not enqueued, and synchronize() (or end_capture(), while recording) returns
/// the error and begins anew.
class CudaStream final : public Stream {
 public:
  /// `priority` as the driver counts, the lower the more urgent. `device` outlives the stream.
  static Result<std::unique_ptr<CudaStream>> create(CudaDevice& device, int priority);
  /// Waits for what was enqueued.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy(std::byte* target, const std::byte* source, std::size_t bytes) override;
  Result<void> synchronize() override;
  void raise_flag(Flag& flag, std::uint32_t value) override;
  void await_flag(const Flag& flag, std::uint32_t value) override;
  void lend_scratch(std::byte* memory, std::size_t bytes) override { lent_ = {memory, bytes}; }
  [[nodiscard]] std::uint64_t mark() override;
  Result<void> wait(std::uint64_t mark) override;
  /// What is recorded has been enqueued once before, so that kernels are loaded and scratch is as
  /// large as it is needed. Graphs use the stream's scratch, and so do not outlive it.
  [[nodiscard]] bool begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;
  void replay(const Graph& graph) override;

  /// Enqueues `kernel` with its parameters, which are copied.
  template <class Params>
  void launch(const KernelId& kernel, const LaunchShape& shape, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kParamBytesMax);
    Params copy = params;  // The driver's interface takes no pointer to const.
    launch_bytes(kernel, shape, &copy, sizeof(Params));
  }
  /// Work enqueued from now on runs after all that is enqueued on `other`, of the same device, by
  /// now. Nothing may be enqueued on `other` by another thread meanwhile.
  void wait_for(const CudaStream& other);

  /// How long the device takes for what `enqueue` enqueues [ms], by its clock. Waits for it, and
  /// for all that was enqueued before. Nothing where the stream has failed, which stays so.
  [[nodiscard]] std::optional<float> time(const std::function<void()>& enqueue);

  /// Memory of the device for the kernel that is launched next, 256-byte aligned; who asks next has
  /// the same: kernels of a stream run one after another. What was lent, where that is enough; its
  /// own grows and never shrinks, and what it was before stays valid for graphs that recorded it.
  /// Null where that failed, which fails the stream.
  [[nodiscard]] std::byte* scratch(std::size_t bytes);
  /// How much of it an operation that has a choice takes at most: what was lent; until any is, as
  /// much as it likes.
  [[nodiscard]] std::size_t scratch_limit() const {
    return lent_.empty() ? std::numeric_limits<std::size_t>::max() : lent_.size();
  }
  /// What an operation found that it cannot do.
  void fail(Error error);

  /// What an operation keeps with the stream, one of each type: made when it is first asked for,
  /// ends with the stream, when its work is done.
  template <class T>
  [[nodiscard]] T& attachment() {
    std::shared_ptr<void>& kept = attachments_[&kTypeMark<T>];
    if (kept == nullptr) {
      kept = std::make_shared<T>();
    }
    return *static_cast<T*>(kept.get());
  }

  [[nodiscard]] CUstream handle() const { return handle_; }
  [[nodiscard]] CudaDevice& device() const { return device_; }
  /// Whether work is recorded rather than run.
  [[nodiscard]] bool capturing() const { return capturing_; }

 private:
  /// Of all a kernel's parameters, on every driver.
  static constexpr std::size_t kParamBytesMax = 4096;

  CudaStream(CudaDevice& device, CudaContext& context) : device_(device), context_(context) {}
  void launch_bytes(const KernelId& kernel,
                    const LaunchShape& shape,
                    void* params,
                    std::size_t param_bytes);
  /// False, and the first error kept, unless the call succeeded.
  bool keep(const char* attempt, CUresult status);
  /// Makes the device current. False where nothing more is to be enqueued.
  bool ready();
  /// The first error since the last time, after waiting.
  Result<void> take_error();

  struct Known {
    CUfunction function = nullptr;
    std::uint32_t shared_bytes = 0;  ///< Most it was asked for.
  };

  CudaDevice& device_;
  CudaContext& context_;
  CUstream handle_ = nullptr;
  CUevent event_ = nullptr;          ///< Recorded by streams that wait for others.
  std::array<CUevent, 2> marks_{};   ///< By turns, of mark().
  std::array<CUevent, 2> timers_{};  ///< Of time(), once it was called.
  std::uint64_t marked_ = 0;         ///< How often.
  bool capturing_ = false;
  std::optional<Error> error_{};
  std::unordered_map<const char*, Known> kernels_{};  ///< By KernelId::name.
  std::span<std::byte> lent_{};
  std::vector<Buffer> scratch_{};  ///< Its own. The last is the one in use.
  /// By its type's mark, whose address tells types apart.
  template <class T>
  static constexpr char kTypeMark = 0;
  std::unordered_map<const char*, std::shared_ptr<void>> attachments_{};
};

}  // namespace heddle::device
