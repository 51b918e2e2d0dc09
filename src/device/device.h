#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "device/buffer.h"

namespace heddle::device {

/// A physical page, numbered within its device's memory. On a CPU host all devices and the host
/// cache number the pages of one arena, so that a page can change hands by its number alone.
using heddle::PageId;

enum class Kind : std::uint8_t { kCpu, kCuda, kFake };

struct Properties {
  Kind kind = Kind::kCpu;
  std::string name{};            ///< As the vendor reports it, for logs only; never branch on it.
  std::size_t page_bytes = 0;    ///< Size and alignment of every page and mapping.
  std::uint64_t page_count = 0;  ///< Pages that exist; ids are [0, page_count).
  bool records = false;          ///< Its streams record work: see Stream::begin_capture().
  bool asynchronous = false;     ///< Its streams run what is enqueued while the host goes on.
  bool flags = false;            ///< Its streams wait for flags: see Stream::await_flag().
  /// Mappings of windows, each of a run of adjacent pages, that there should be at most; 0: any.
  std::uint64_t most_mappings = 0;
};

/// What a mapping allows. Weights are mapped read-only, so that a stray write is a fault rather
/// than a model that answers wrongly from now on.
enum class Access : std::uint8_t { kRead, kReadWrite };

/// Addresses reserved on a device, [base, base + bytes). Reserving takes no memory; touching a part
/// with no page mapped is a fault.
struct AddressRange {
  std::byte* base = nullptr;  ///< Meaningful on the device; host code must not dereference it.
  std::size_t bytes = 0;
};

/// What the driver takes of a GPU's memory for an operation that is recorded [bytes]; it does not
/// tell. By estimate, to be measured: CUDA graphs of whole decode steps are reported to take 10 to
/// 24 MiB, at some hundred operations.
inline constexpr std::uint64_t kRecordedBytes = std::uint64_t{32} << 10U;

/// Work that a stream recorded once, to be run again and again for little. Refers to addresses as
/// they were, which must stay valid; does not outlive the device.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Of the device's memory, as estimated by kRecordedBytes.
  [[nodiscard]] virtual std::uint64_t bytes() const { return 0; }
};

/// A number that a stream or a thread raises and a stream waits for, in pinned memory of the host:
/// whoever waits for a device that will never come can be let go by anybody.
using Flag = std::atomic<std::uint32_t>;

/// An ordered queue of work on one device. Calls enqueue and return; work on one stream runs in
/// order, work on two streams in any order unless one waits for the other. No result may be looked
/// at before synchronize(). Used by one thread.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Either side may be on the host, where it should be pinned: other memory makes the call block.
  virtual void copy(std::byte* target, const std::byte* source, std::size_t bytes) = 0;
  /// Blocks until all work is done. Reports the first failure since the last call: device faults
  /// surface here and nowhere else.
  virtual Result<void> synchronize() = 0;

  /// Memory of the device that operations take for themselves from now on, one after another as
  /// they run: 256-byte aligned. What they do depends on how much it is, where they have a choice;
  /// one that needs more has that from the device, as all have before any is lent.
  virtual void lend_scratch(std::byte* /*memory*/, std::size_t /*bytes*/) {}

  /// A place in the stream: behind all that is enqueued by now. The last two are remembered; an
  /// older one stands for the older of these.
  [[nodiscard]] virtual std::uint64_t mark() { return 0; }
  /// As synchronize(), for what was enqueued before `mark`; what came after it may still run, and a
  /// failure to enqueue that is reported as well.
  virtual Result<void> wait(std::uint64_t /*mark*/) { return synchronize(); }

  // On devices with Properties::flags; neither is recorded:
  /// Raises `flag` to `value` when all that was enqueued before is done, which whoever sees the
  /// value sees as well.
  virtual void raise_flag(Flag& /*flag*/, std::uint32_t /*value*/) { HEDDLE_CHECK(false); }
  /// What is enqueued from now on waits until `flag` is `value` or above, counting round: at most
  /// 2^31 - 1 above. It waits for ever where nobody raises it.
  virtual void await_flag(const Flag& /*flag*/, std::uint32_t /*value*/) { HEDDLE_CHECK(false); }

  /// Begins to record: until end_capture(), what is enqueued is noted down and not run, and nothing
  /// may be allocated or synchronised. False where the device records nothing; then all is as it
  /// was.
  [[nodiscard]] virtual bool begin_capture() { return false; }
  /// What was enqueued since begin_capture() returned true; an error where some of it cannot be
  /// recorded, or the device is lost. None of it has run.
  virtual Result<std::unique_ptr<Graph>> end_capture() {
    return Error{.code = Code::kFailedPrecondition, .message = "nothing was being recorded"};
  }
  /// Enqueues what `graph`, made by a stream of this device, recorded. It lives until
  /// synchronize().
  virtual void replay(const Graph& /*graph*/) { HEDDLE_CHECK(false); }
};

/// Memory of a device that other processes may copy from, and what they attach it by.
struct SharedBuffer {
  Buffer buffer{};
  Descriptor descriptor{};
};

/// One accelerator, or the host acting as one. This is the whole of what the engine, the page pool
/// and the loader know of hardware; vendor headers are included only under device/cuda and
/// ops/cuda. Thread safe. Outlives all streams and ranges made from it.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const Properties& properties() const = 0;

  /// Where `page` is in the one mapping of all memory that is made at start. Never changes, so KV
  /// blocks are addressed by page number and change owner without mapping anything.
  [[nodiscard]] virtual std::byte* page_address(PageId page) const = 0;

  /// Where page `page` of the host's arena is, for copies to and from this device: pinned, and
  /// meant for host code too. On a CPU device the same as page_address.
  [[nodiscard]] virtual std::byte* host_page_address(PageId page) const = 0;

  /// Pages whose memory goes back to whoever the device has it from, for a program that is not
  /// ours: nothing refers to them any more, nothing may until they are taken again. On a CPU device
  /// nothing happens, as the arena's holder sees to it.
  virtual void give_back(std::span<const PageId> /*pages*/) {}
  /// Takes memory for them again. All, or kResourceExhausted.
  virtual Result<void> take_again(std::span<const PageId> /*pages*/) { return {}; }

  /// Memory beside the pages, all zero, at least 256-byte aligned on accelerators and 64 on hosts.
  /// `bytes` > 0. kResourceExhausted.
  virtual Result<Buffer> allocate(Place place, std::size_t bytes) = 0;

  /// Lets work of this device use `bytes` of this process's memory as host memory of its own, until
  /// the buffer ends, which frees nothing. kResourceExhausted.
  virtual Result<Buffer> pin(std::byte* memory, std::size_t bytes) {
    return Buffer(memory, bytes, [](std::byte*) {});
  }

  /// `bytes` > 0, a multiple of the page. kResourceExhausted when no contiguous range of addresses
  /// is left.
  virtual Result<AddressRange> reserve(std::size_t bytes) = 0;
  virtual void release(AddressRange range) = 0;

  /// Backs range[offset, offset + pages.size() * page_bytes) with `pages`, in order: a second
  /// mapping of the same memory, for weights, which want one contiguous range. The part is unmapped
  /// before, and again after an error.
  virtual Result<void> map(AddressRange range,
                           std::size_t offset,
                           std::span<const PageId> pages,
                           Access access) = 0;
  /// Makes a part that is mapped usable without a fault, where the first use would have one. Only
  /// speed depends on it.
  virtual void populate(AddressRange /*range*/, std::size_t /*offset*/, std::size_t /*bytes*/) {}
  /// Takes `bytes` at `offset` out of the range again. The caller has made sure that no enqueued
  /// work still touches them.
  virtual void unmap(AddressRange range, std::size_t offset, std::size_t bytes) = 0;

  // Of several GPUs of a host, each of which has a process of its own:
  /// Whether there is a link between this GPU and GPU `peer` (as the driver counts), so that copies
  /// between them take nothing of the way to the host.
  [[nodiscard]] virtual bool is_linked_to(int /*peer*/) const { return false; }
  /// Memory of this device, at least `bytes` > 0, for another GPU's process to attach.
  /// kResourceExhausted; kFailedPrecondition where devices have no such memory.
  virtual Result<SharedBuffer> allocate_shared(std::size_t bytes);
  /// Makes the `bytes` that another GPU's process shares usable to copies and kernels of this
  /// device. They stay what they are when that process ends.
  virtual Result<Buffer> attach_shared(const Descriptor& shared, std::size_t bytes);
  /// Backs the page of `range` at `offset`, which is not mapped, with memory of this device that is
  /// made for it and is no page of the device's; by the descriptor others map it as well. It lasts
  /// as long as somebody maps it or has the descriptor. Errors as allocate_shared().
  virtual Result<Descriptor> map_new_shared(AddressRange range, std::size_t offset);
  /// The same with memory that map_new_shared() made: on another GPU, which kernels of this one
  /// come to read and write, or on this one in another process. Errors as attach_shared().
  virtual Result<void> map_shared(AddressRange range, std::size_t offset, const Descriptor& shared);

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  /// A stream whose work gives way to that of the others, on devices that can tell them apart.
  virtual Result<std::unique_ptr<Stream>> create_background_stream() { return create_stream(); }
};

inline Result<SharedBuffer> Device::allocate_shared(std::size_t /*bytes*/) {
  return Error{.code = Code::kFailedPrecondition, .message = "the device shares no memory"};
}

inline Result<Buffer> Device::attach_shared(const Descriptor& /*shared*/, std::size_t /*bytes*/) {
  return Error{.code = Code::kFailedPrecondition, .message = "the device shares no memory"};
}

inline Result<Descriptor> Device::map_new_shared(AddressRange /*range*/, std::size_t /*offset*/) {
  return Error{.code = Code::kFailedPrecondition, .message = "the device shares no memory"};
}

inline Result<void> Device::map_shared(AddressRange /*range*/,
                                       std::size_t /*offset*/,
                                       const Descriptor& /*shared*/) {
  return Error{.code = Code::kFailedPrecondition, .message = "the device shares no memory"};
}

}  // namespace heddle::device
