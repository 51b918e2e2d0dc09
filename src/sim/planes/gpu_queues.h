#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "policy/device_queue.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// A queue in front of every GPU: requests that know their replica and wait until
/// policy::plan_queue says that their prompts are next. The queue of a replica's first GPU is its
/// own.
class GpuQueues {
 public:
  explicit GpuQueues(policy::QueueOptions options) : options_(options) {}
  static constexpr std::size_t kLookedAt = 128;
  void resize(std::size_t gpus) { gpus_.resize(gpus); }

  void add(const World& world, LiveId id, ReplicaId replica);
  /// Requests queued for a replica, not dispatched yet.
  [[nodiscard]] std::int64_t queued(ReplicaId replica) const;
  /// Prompts that wait or are read on a GPU [time].
  [[nodiscard]] Duration backlog(const World& world, GpuId gpu) const;

  /// What a pass could not do.
  struct Left {
    std::vector<LiveId> homeless{};   ///< Their replica takes no requests any more.
    std::vector<ModelId> rejected{};  ///< Of requests that would not fit even alone.
    /// Pages that the first blocked request wants, and its model.
    std::optional<std::pair<ModelId, std::int64_t>> blocked{};
  };
  /// Dispatches what the plan says. Nothing while engines have prompts enough to read. Of a long
  /// queue it looks at the first kLookedAt in each order, on time and late: O(log queue).
  Left pass(const World& world, Actions& actions, GpuId gpu);
  /// A prompt has been read, or its engine is gone.
  void read(LiveId id);
  /// Takes what waits in a GPU's queue, for `replica` if one is named.
  std::vector<LiveId> take(const World& world, GpuId gpu, std::optional<ReplicaId> replica = {});

 private:
  struct Waiting {
    LiveId id{};
    ReplicaId replica{};
    Duration alone{};  ///< Reading its prompt, if nobody else reads.
    bool late = false;
  };
  /// By what plan_queue orders them: deadlines, or the order of its late list.
  using Order = std::set<std::pair<Duration, RequestId>>;
  struct PerGpu {
    std::map<RequestId, Waiting> queue{};
    Order on_time{};
    Order late{};
    std::map<ModelId, Duration> alone{};  ///< Sum over the queue.
    Duration dispatched{};                ///< Prompts given to engines and not read yet.
    Duration late_credit{};
  };
  struct Reading {
    GpuId gpu{};
    Duration prefill{};
  };
  void forget(PerGpu& gpu, const Waiting& waiting, ModelId model);
  [[nodiscard]] Duration rank(const World& world, const Waiting& waiting) const;
  void put(const World& world, PerGpu& gpu, const Waiting& waiting);
  void take_out(const World& world, PerGpu& gpu, const Waiting& waiting);
  [[nodiscard]] std::int64_t free_pages(const World& world, GpuId gpu) const;

  policy::QueueOptions options_;
  std::vector<PerGpu> gpus_{};
  std::map<LiveId, Reading> reading_{};
  std::map<ReplicaId, std::int64_t> queued_{};
};

/// How long reading a request's prompt alone will take on a GPU, with the engines that read there
/// now.
[[nodiscard]] Duration prefill_time(const World& world, const LiveRequest& request, GpuId gpu);

}  // namespace heddle::sim
