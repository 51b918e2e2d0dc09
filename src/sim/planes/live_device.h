#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/messages.h"
#include "core/prefill_queue.h"
#include "sim/planes/live_map.h"

namespace heddle::sim {

/// One GPU of the world as a live manager knows it: the life of its worker, what was loaded there,
/// and the requests that were sent there and that no engine of the world has yet. These are
/// admitted as `core::WorkerCore` admits them, by the same queue and the same reckoning of pages;
/// and reports are made as it makes them.
class LiveDevice {
 public:
  LiveDevice(const LiveMap& map, GpuId gpu) : map_(&map), gpu_(gpu), id_(map.device(gpu)) {}

  /// A model that was ordered here.
  struct Resident {
    /// Of the world; nullopt: other parts of it have not been ordered yet.
    std::optional<ReplicaId> replica{};
    bool going = false;  ///< Its eviction was ordered.
  };
  /// A request that was sent here and that no engine has.
  struct Waiting {
    LiveId live{};
    RequestId request{};  ///< As the manager knows it.
    ModelId as{};         ///< What runs it.
    Instant due{};        ///< Its first token.
  };

  [[nodiscard]] DeviceId id() const { return id_; }
  [[nodiscard]] GpuId gpu() const { return gpu_; }

  // ---- The life of its worker ----

  [[nodiscard]] bool up() const { return up_; }
  [[nodiscard]] WorkerEpoch epoch() const { return epoch_; }
  [[nodiscard]] bool lives(WorkerEpoch epoch) const { return up_ && epoch == epoch_; }
  void come_up();
  /// It is gone, with all that was there; what waits is still to be taken.
  void go_down();
  /// Counts a surprise: orders that were decided upon before are stale.
  std::uint64_t surprise() { return ++version_; }
  [[nodiscard]] std::uint64_t version() const { return version_; }

  // ---- What is there ----

  [[nodiscard]] std::map<ModelId, Resident>& residents() { return residents_; }
  [[nodiscard]] Resident* resident(ModelId model);

  // ---- Requests ----

  void submit(const Waiting& waiting) { waiting_[sequence_of(waiting.request)] = waiting; }
  /// Takes out those that wait, of a model if one is named, oldest first; at most so many.
  std::vector<Waiting> take(const World& world,
                            std::optional<ModelId> as = {},
                            std::int64_t most = INT64_MAX);
  /// Those that are to go to their engines now, in this order; they wait no longer.
  std::vector<Waiting> admit(const World& world);
  /// When to look again, if nothing happens before; nullopt: nobody waits for anything but weights.
  [[nodiscard]] std::optional<Instant> next_look(const World& world) const;

  /// Requests were sent here that no engine has.
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }

  // ---- Reports ----

  /// An engine here has work, and found no page for any of it.
  void stall(ReplicaId replica) { stalled_ = replica; }
  /// Something has changed that a report would tell; residency is told at once.
  void change(bool of_residency);
  /// As the worker would report now, if it would: residency has changed, or counts have and the
  /// last report was long enough ago or nothing runs.
  std::optional<core::DeviceReport> report_changes(const World& world);
  /// When a report of counts is due; nullopt: nothing has changed.
  [[nodiscard]] std::optional<Instant> report_due() const;

 private:
  struct Views;
  [[nodiscard]] static policy::SequenceId sequence_of(RequestId request) {
    return policy::SequenceId(request.value());
  }
  [[nodiscard]] const Replica* serving(const World& world, ModelId model) const;
  [[nodiscard]] Views views(const World& world) const;
  [[nodiscard]] std::int64_t kv_pages_total(const World& world) const;
  [[nodiscard]] core::PrefillState prefill_state(const World& world) const;
  [[nodiscard]] Duration prefill(const World& world, ModelId model, std::int64_t tokens) const;
  [[nodiscard]] double slowdown(const World& world, ModelId model) const;
  [[nodiscard]] core::DeviceReport report(const World& world) const;
  [[nodiscard]] ledger::PoolUsage usage(const World& world) const;
  void tell_guests(const World& world, const Replica& replica, core::ResidentReport& report) const;
  void note_reading(const World& world);
  void tell_shortage(const World& world, core::DeviceReport& report) const;
  void tell_group_shortage(const World& world,
                           const std::map<ModelId, std::int64_t>& parts,
                           core::DeviceReport& report) const;
  [[nodiscard]] bool in_ranks(ModelId model) const;
  [[nodiscard]] static std::int64_t share_growth(const World& world, const Replica& replica);
  void tell_stall(const World& world, core::DeviceReport& report) const;

  const LiveMap* map_;
  GpuId gpu_;
  DeviceId id_;
  bool up_ = false;
  WorkerEpoch epoch_{};
  std::uint64_t version_ = 0;
  std::map<ModelId, Resident> residents_{};
  std::map<policy::SequenceId, Waiting> waiting_{};
  core::PrefillQueue queue_{};
  std::optional<ReplicaId> stalled_{};
  bool residency_changed_ = false;
  bool counts_changed_ = false;
  /// Prompts that a model was given to read, which weaving asks for.
  struct Reading {
    Instant since{};
    Duration sum{};
    double part = 0;  ///< Of the time, lately.
  };
  std::map<ModelId, Reading> reading_{};
  Instant reported_at_{};
  ModelId told_short_{};
};

/// Pages that a GPU lends to KV of models elsewhere, and that hold none.
[[nodiscard]] std::int64_t lent_and_empty(const World& world, GpuId host);

}  // namespace heddle::sim
