#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/memory_file.h"
#include "base/result.h"
#include "base/time.h"
#include "device/device.h"
#include "ops/paged_kv.h"

namespace heddle::weave {

inline constexpr std::int64_t kLayersMax = 256;
inline constexpr std::int64_t kGroupsMax = 16;
inline constexpr std::int64_t kRowsMax = 1024;
inline constexpr std::int64_t kBlocksMax = std::int64_t{1} << 16U;

/// Where the KV of a layer is in its blocks (ops::PagedKv).
struct LayerPlace {
  std::int64_t group = 0;
  std::int64_t key_offset = 0;
  std::int64_t value_offset = 0;
  std::int64_t block_bytes = 0;
  std::int64_t block_tokens = 0;
};

/// What the two sides have to agree about: the hot model, and how large a step may be.
struct Geometry {
  std::array<char, 16> kernels{};  ///< The instruction set: others give other bits.
  std::int64_t page_bytes = 0;
  std::int64_t kv = 0;  ///< Of keys and values, an ops::DType: float32, bfloat16 or int8.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t border = 0;  ///< ops::attention_border().
  std::int64_t layers = 0;
  std::int64_t groups = 0;
  std::int64_t rows = 0;    ///< Guest sequences of a step, at most.
  std::int64_t blocks = 0;  ///< Of one of them in one group, at most.
  float scale = 1.0F;
  float soft_cap = 0.0F;
  std::array<LayerPlace, kLayersMax> places{};
};

/// The type of keys and values. Of a geometry that check_geometry() takes.
[[nodiscard]] inline ops::DType kv_dtype(const Geometry& geometry) {
  return static_cast<ops::DType>(geometry.kv);
}

/// kInvalidArgument, naming the field, its value and what would be right, where the geometry cannot
/// be served by kernels called `kernels` over pages of `page_bytes`.
[[nodiscard]] Result<void> check_geometry(const Geometry& geometry,
                                          std::string_view kernels,
                                          std::int64_t page_bytes);

/// A word in shared memory that one side raises and the other waits for: 31 bits, and one that says
/// that nobody raises it any more.
class Ticket {
 public:
  static constexpr std::uint32_t kMask = UINT32_MAX / 2;

  /// Raises it to `value`, of 31 bits, and wakes who sleeps.
  void raise(std::uint32_t value);
  [[nodiscard]] std::uint32_t get() const { return word_.load(std::memory_order_acquire) & kMask; }
  /// Waits until it differs from `old`: looks for `look`, then sleeps. False once `patience` is
  /// over or the ticket is closed.
  bool wait_past(std::uint32_t old, Duration look, Duration patience);
  /// Wakes who waits, for good.
  void close();
  /// Whether somebody who waits has gone to sleep.
  [[nodiscard]] bool sleeps() const { return sleepers_.load(std::memory_order_acquire) > 0; }

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

/// The layers of a geometry that are in one of these groups (JobArea::Job::groups).
[[nodiscard]] std::int64_t layers_of(const Geometry& geometry, std::uint32_t groups);

/// The memory through which a hot engine has a host run attention: one memfd, made by whoever pairs
/// the two. Tables of the step, queries and states of one layer. Shared by the threads of a
/// process; unmaps and closes with the last reference.
class JobArea {
 public:
  /// kInvalidArgument for sizes that cannot be, kResourceExhausted where the host lacks the memory.
  static Result<std::shared_ptr<JobArea>> create(const Geometry& geometry);
  /// Maps what another process made and passed; duplicates `fd`. kInvalidArgument unless it is such
  /// a memory file.
  static Result<std::shared_ptr<JobArea>> attach(int fd);
  JobArea(const JobArea&) = delete;
  JobArea& operator=(const JobArea&) = delete;

  /// To be passed to other processes; stays this object's.
  [[nodiscard]] int fd() const { return memory_.fd(); }
  /// As it was when this process mapped it: the other side cannot change it any more.
  [[nodiscard]] const Geometry& geometry() const { return geometry_; }

  /// Tickets of layers, by number: asked for by the hot side, answered by the host.
  [[nodiscard]] Ticket& posted();
  [[nodiscard]] Ticket& served();
  /// Ends the pair for good, and wakes both. Any thread of any process.
  void close();
  [[nodiscard]] bool closed() const;

  /// What a layer is about. Written by the hot side before it raises posted().
  struct Job {
    std::uint32_t step = 0;
    std::int64_t layer = 0;
    std::int64_t rows = 0;
    std::uint32_t groups = 0;  ///< Between GPUs, of the whole step: bit g: layers of group g.
    std::uint32_t ticket = 0;  ///< Between GPUs: the flags' before the step.
  };
  [[nodiscard]] Job& job();
  /// Tables of a step, in turn: borders [rows], then blocks [groups, rows, blocks].
  [[nodiscard]] std::span<std::int32_t> table(std::uint32_t step);
  /// Between GPUs streams raise these, by two for each layer; tickets are of steps then.
  [[nodiscard]] device::Flag& layer_posted();
  [[nodiscard]] device::Flag& layer_served();
  /// All of it, for devices to reach.
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.bytes()}; }
  /// [rows, heads, head_dim] and [rows, heads, head_dim + 2].
  [[nodiscard]] std::span<float> queries();
  [[nodiscard]] std::span<float> states();

 private:
  struct Header;
  struct Layout;
  JobArea(MemoryFile memory, const Geometry& geometry)
      : memory_(std::move(memory)), geometry_(geometry) {}
  [[nodiscard]] Header& header() const;

  MemoryFile memory_;
  Geometry geometry_;
};

}  // namespace heddle::weave
