#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "sim/cluster.h"
#include "sim/control.h"
#include "sim/event_queue.h"
#include "sim/links.h"
#include "sim/memory.h"
#include "sim/request_row.h"
#include "sim/simulated_engine.h"
#include "sim/step_model.h"

namespace heddle::sim {

/// A request that has arrived and not ended.
struct LiveRequest {
  RequestId number{};  ///< Its place in the workload, from 0.
  ModelId model{};
  Instant arrival{};
  std::int64_t prompt = 0;
  std::int64_t generate = 0;
  std::int64_t generated = 0;
  std::optional<Instant> first_token{};
  ReplicaId replica{};  ///< Where it was dispatched to, if it was.
  bool dispatched = false;
  bool waited_for_start = false;  ///< No instance of its model served when it came.
  std::int64_t preemptions = 0;
  bool live = false;
};

/// What a replica's outstanding transfers and timers are of; a phase ends when none is left.
enum class LoadPhase : std::uint8_t {
  kBefore,
  kFetch,
  kCopy,
  kAfter,
  kRest,   ///< The part that serving did not wait for.
  kMerge,  ///< The rest of a pipeline's weights.
};

/// One worker of a replica.
struct Stage {
  StageSpec spec{};
  std::int64_t weight_pages = 0;  ///< On each of its GPUs.
  double kv_bytes_per_block = 0;  ///< On each of its GPUs.
};

struct Replica {
  ReplicaId id{};
  ModelId model{};
  ReplicaPhase state = ReplicaPhase::kWaiting;
  StartSpec spec{};
  std::vector<Stage> stages{};
  std::vector<GpuId> gpus{};  ///< Of all stages.
  LeaseId weights{};          ///< 0: none.
  LeaseId kv{};               ///< Own KV; 0: none.
  LeaseId guest_kv{};         ///< On the host replica's GPUs; 0: none.
  LeaseId overhead{};         ///< 0: none.
  double value = 0;
  std::int64_t kv_limit = -1;
  std::unique_ptr<SimulatedEngine> engine{};
  std::uint64_t stamp = 0;       ///< Of its newest scheduled event; older ones are void.
  Instant scheduled{};           ///< When that is, for the engine.
  std::int64_t outstanding = 0;  ///< Transfers and timers of the present phase.
  LoadPhase phase{};
  double loaded = 0;      ///< Part of the weights that is there.
  bool attached = false;  ///< Serves when loaded, though it was begun as a prewarm.
  Instant created{};
  std::optional<Instant> begun{};   ///< When it had its pages.
  std::optional<Instant> filled{};  ///< When its weights were there.
  Instant used{};                   ///< When its newest request came or its last one ended.
  Instant serving_since{};
  std::int64_t published_ps = 0;      ///< GPU time that its neighbours count with.
  std::optional<GpuId> guest_host{};  ///< Where its guests' KV is.
  bool guest_split = true;            ///< Its guests' host may split kernels.
  double guest_busy = 0;              ///< Part of the host's time that its guests take.
  double guest_busy_told = 0;         ///< To those that run there.
  Duration guest_overhead{};          ///< Of a step on its guests' host.
  double guest_share = 0;             ///< Weave::share.
  double guest_debt = 0;              ///< Sequences owed to the host, to keep the share.
  std::int64_t lent_pages = 0;        ///< Weave::pages.
  std::size_t merging = 0;            ///< 1 + stage that a merge is under way to; 0: none.
  bool split = false;
  std::vector<TransferId> transfers{};

  [[nodiscard]] bool weaves() const { return guest_share > 0 || lent_pages > 0; }
  [[nodiscard]] bool serves() const { return state == ReplicaPhase::kServing; }
  [[nodiscard]] std::size_t load() const { return engine ? engine->load() : 0; }
};

struct Gpu {
  GpuId id{};
  HostId host{};
  bool up = true;
  std::int64_t faults = 0;  ///< That keep it down.
  std::int64_t pages = 0;
  std::set<ReplicaId> replicas{};   ///< That hold or await pages here.
  std::vector<ReplicaId> active{};  ///< With an engine in a run.
  std::vector<ReplicaId> hosts{};   ///< Replicas elsewhere whose guests are here.
  LinkId pcie{};                    ///< Of its host.
};

struct Host {
  HostId id{};
  bool up = true;
  std::int64_t faults = 0;  ///< That keep it down.
  std::vector<GpuId> gpus{};
  LinkId nic{};
  LinkId memory{};
  LinkId nvlink{};
  LinkId disk{};
  struct Image {
    LeaseId lease{};
    std::uint64_t used = 0;  ///< Order of use.
  };
  std::map<ModelId, Image> cache{};
  std::set<std::pair<std::uint64_t, ModelId>> by_use{};
};

/// What is noted when a request has ended.
struct Outcome {
  const LiveRequest* request = nullptr;
  Instant ended{};
  RequestEnd end{};
};

/// What an observer may want to hear of; each has an empty default.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void ended(const World& /*world*/, const Outcome& /*outcome*/) {}
  /// An action was taken. `other` is for whom, or the far end; `request` where one is concerned.
  struct Act {
    Instant at{};
    std::string_view verb{};
    Reason reason{};
    ModelId model{};
    ReplicaId replica{};
    std::optional<GpuId> gpu{};
    std::optional<ModelId> other{};
    std::optional<RequestId> request{};
  };
  virtual void acted(const World& /*world*/, const Act& /*act*/) {}
  virtual void sampled(const World& /*world*/, Instant /*at*/) {}
  /// The warm-up is over.
  virtual void counting(const World& /*world*/) {}
};

struct WorldOptions {
  Duration sample_period{};                   ///< Of Observer::sampled; 0: never.
  bool check_every_event = false;             ///< All invariants, after every event.
  Duration patience = std::chrono::hours(2);  ///< After the last arrival; then the rest counts as
                                              ///< unserved.
  /// Models whose weights lie in host memory of every server when time begins: of these, in this
  /// order, as many as fit. GPUs begin empty; what is nowhere else comes from the store.
  std::vector<ModelId> in_host_memory{};
  Duration warmup{};  ///< From then on it counts what happens; Observer::counting is told.
  /// Asked after each event whether enough is known; empty: the run goes to its end.
  std::function<bool()> stop{};
};

/// Requests of one model that were never served, and why the newest look at them says so.
struct Unserved {
  ModelId model{};
  std::int64_t requests = 0;
  RequestId first{};
  std::string why{};
};

/// How a run ended.
struct RunEnd {
  enum class Kind : std::uint8_t {
    kDone,              ///< Every request has ended.
    kOutOfPatience,     ///< Requests were being served, WorldOptions::patience after the last came.
    kNothingHappens,    ///< Requests waited, and nothing was under way that could serve them.
    kGoesRoundInRings,  ///< Events repeated, and no request got any further by them.
    kStopped            ///< WorldOptions::stop said so; nothing is told of what had not ended.
  };
  Kind kind = Kind::kDone;
  Instant at{};
  std::vector<Unserved> unserved{};  ///< By model.

  /// Whether the policy came to a stop with requests left.
  [[nodiscard]] bool stuck() const {
    return kind == Kind::kNothingHappens || kind == Kind::kGoesRoundInRings;
  }
};
[[nodiscard]] std::string_view name(RunEnd::Kind kind);

struct WorldCounts {
  std::int64_t arrived = 0, completed = 0, refused = 0, unserved = 0;
  std::int64_t starts = 0, hits = 0, attaches = 0, misses = 0, prewarms = 0, evictions = 0;
  std::int64_t preemptions = 0, resubmissions = 0, merges = 0, failures = 0;
  std::int64_t events = 0, tokens = 0;
  double bytes_fetched = 0, bytes_loaded = 0, bytes_kv_moved = 0;
};

/// What was counted between two moments.
[[nodiscard]] WorldCounts operator-(const WorldCounts& later, const WorldCounts& earlier);

/// A cluster, its users and its faults in virtual time, for one control plane to act in. Single
/// threaded and deterministic: equal inputs give equal histories, to the byte. The read-only part
/// is what control planes see; to change anything they use Actions.
/// An event costs O(log) of what there is, beside what the touched engine holds.
class World final : private Actions {
 public:
  World(const ClusterSpec& cluster,
        std::vector<ModelSpec> models,
        ControlPlane& plane,
        Observer& observer,
        const WorldOptions& options);
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// A fault or repair at `at`, before run().
  enum class Fault : std::uint8_t {
    kGpu,      ///< Fails; its replicas are gone.
    kHost,     ///< All its GPUs and its cache.
    kNic,      ///< Runs at `factor` of its speed.
    kPcie,     ///< Of GPU `target`, likewise.
    kRestore,  ///< Loads on GPU `target` that are under way stand still.
    kWorker,   ///< The engines on GPU `target` die; the GPU is fine.
  };
  void inject(Instant at, Fault fault, std::uint64_t target, double factor);
  void repair(Instant at, Fault fault, std::uint64_t target, double factor);

  /// Replays the workload to its end, or until nothing comes of it any more: no model reads or
  /// writes a token, no load comes to an end, and either nothing is under way or events repeat.
  void run(RequestSource& source);
  /// After run().
  [[nodiscard]] const RunEnd& end() const { return end_; }

  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] const ControlPlane& plane() const { return plane_; }
  [[nodiscard]] const std::vector<ModelSpec>& models() const { return models_; }
  [[nodiscard]] const ModelSpec& model(ModelId id) const { return models_[id.value()]; }
  [[nodiscard]] const std::vector<Gpu>& gpus() const { return gpus_; }
  [[nodiscard]] const Gpu& gpu(GpuId id) const { return gpus_[id.value()]; }
  [[nodiscard]] const std::vector<Host>& hosts() const { return hosts_; }
  [[nodiscard]] const Host& host(HostId id) const { return hosts_[id.value()]; }
  [[nodiscard]] const HostSpec& host_spec(HostId id) const { return cluster_.hosts[id.value()]; }
  [[nodiscard]] const HostSpec& host_spec(GpuId id) const { return host_spec(gpu(id).host); }
  [[nodiscard]] std::int64_t page_bytes() const { return cluster_.page_bytes; }
  [[nodiscard]] const LiveRequest& request(LiveId id) const { return requests_[id.value()]; }
  /// Null when it is gone.
  [[nodiscard]] const Replica* replica(ReplicaId id) const;
  /// The replicas of a model that are not gone, by id.
  [[nodiscard]] const std::vector<ReplicaId>& replicas_of(ModelId id) const;
  [[nodiscard]] std::int64_t free_pages(GpuId id) const {
    return memory_.free(ledger::device_pool(id));
  }
  [[nodiscard]] bool cached(HostId host, ModelId model) const {
    return hosts_[host.value()].cache.contains(model);
  }
  [[nodiscard]] const HostLinks& links(HostId id) const { return links_[id.value()]; }
  [[nodiscard]] std::int64_t pages(double bytes) const;
  /// Pages of a model's weights, per GPU, when whole on its tp GPUs.
  [[nodiscard]] std::int64_t weight_pages(ModelId id) const;
  [[nodiscard]] std::int64_t overhead_pages(ModelId id) const;
  /// Pages of KV, per GPU, of so many tokens.
  [[nodiscard]] std::int64_t kv_pages(ModelId id, std::int64_t tokens) const;
  /// Step times of a model on the GPUs of a host.
  [[nodiscard]] const StepModel& step_model(ModelId model, HostId host) const;
  [[nodiscard]] const Memory& memory() const { return memory_; }
  [[nodiscard]] const WorldCounts& counts() const { return counts_; }
  /// GPUs that hold anything, times how long.
  [[nodiscard]] double gpu_seconds() const;
  /// A digest of all that happened, in order.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

  /// CHECK-fails when any invariant is broken: ledger sums, one owner per page, engines, requests.
  void check_invariants() const;

 private:
  enum class EventKind : std::uint8_t {
    kArrival,
    kEngine,
    kLinks,
    kPhase,
    kTimer,
    kFault,
    kRepair,
    kSample,
    kUnmapped,
    kCounting
  };
  struct Event {
    EventKind kind{};
    std::uint32_t index = 0;
    std::uint64_t stamp = 0;
  };
  struct PlannedFault {
    Fault fault{};
    std::uint64_t target = 0;
    double factor = 0;
  };
  struct TransferOwner {
    ReplicaId replica{};
    HostId host{};
  };
  class Budget;

  // Actions.
  bool dispatch(LiveId request, ReplicaId replica, Reason reason) override;
  void reject(LiveId request, Reason reason) override;
  ReplicaId start(const StartSpec& spec, Reason reason) override;
  bool serve(ReplicaId replica, Duration after, Reason reason) override;
  void attach(ReplicaId replica, Reason reason) override;
  void drain(ReplicaId replica, Reason reason) override;
  void evict(ReplicaId replica, Reason reason, std::optional<ModelId> for_whom) override;
  void stop(ReplicaId replica, Reason reason) override;
  void merge(ReplicaId replica, std::size_t stage, bool split, Reason reason) override;
  void weave(ReplicaId hot, const Weave& how, Reason reason) override;
  void set_kv_limit(ReplicaId replica, std::int64_t pages, Reason reason) override;
  void set_value(ReplicaId replica, double value) override;
  void timer(Instant at, std::uint64_t tag) override;

  // world.cc: the loop, requests, set-up.
  void build(const ClusterSpec& cluster);
  void perform(const Event& event, RequestSource& source);
  void arrive(RequestSource& source);
  void notify(const Notice& notice) { notices_.push_back(notice); }
  void deliver_notices();
  void sample();
  void end_request(LiveId id, RequestEnd end);
  void note(std::string_view verb,
            Reason reason,
            const Replica& replica,
            std::optional<ModelId> other = {},
            std::optional<RequestId> request = {});
  void mix(std::uint64_t value);
  Replica& at(ReplicaId id) { return *replicas_[id.value()]; }
  Replica* find(ReplicaId id);

  // world_end.cc: how a run ends.
  void progressed();
  [[nodiscard]] bool goes_round_in_rings() const;
  [[nodiscard]] bool nothing_happens() const;
  [[nodiscard]] bool loads_in_vain() const;
  [[nodiscard]] bool works(const Replica& replica) const;
  void give_up(RunEnd::Kind kind);
  [[nodiscard]] std::string why_unserved(const LiveRequest& request) const;

  // world_loads.cc: how weights get to GPUs, and the rest of a pipeline's to one of its workers.
  void begin_phase(Replica& replica, LoadPhase phase);
  void fetch(Replica& replica, double part, LinkClass link_class);
  void copy(Replica& replica,
            const Stage& stage,
            std::optional<LinkId> from,
            double bytes,
            LinkClass link_class);
  void add_transfer(
      Replica& replica, HostId host, std::vector<LinkId> path, double bytes, LinkClass link_class);
  void cancel_transfers(Replica& replica);
  void links_event(HostId host, std::uint64_t stamp);
  void schedule_links(HostId host);
  void phase_timer(Replica& replica, Duration after);
  void phase_step_done(ReplicaId id);
  void loaded(Replica& replica);
  void merged(Replica& replica);
  void cache(HostId host, ModelId model);
  void fill_host_memory();
  void touch_image(HostId host, ModelId model);
  [[nodiscard]] double link_rate(HostId host, LinkId link) const;

  // world_replicas.cc: from start to eviction.
  void recall_for(const Replica& replica);
  [[nodiscard]] static std::int64_t kept_pages(const Replica& replica);
  bool take_pages(Replica& replica);
  void try_begin(Replica& replica);
  [[nodiscard]] std::vector<ledger::Demand> weight_demands(const Replica& replica) const;
  [[nodiscard]] static std::vector<ledger::Demand> demands(const Replica& replica,
                                                           std::int64_t pages);
  bool open_engine(Replica& replica);
  void close_engine(Replica& replica);
  void requeue(Replica& replica, Reason reason);
  void drained(Replica& replica);
  void unmap(Replica& replica);
  void unmapped(ReplicaId id);
  void forget(Replica& replica);
  void retry_waiting(GpuId gpu);
  void use_gpu(GpuId gpu, Replica& replica);
  void leave_gpu(GpuId gpu, Replica& replica);

  // world_engines.cc: iterations, KV, co-running.
  void engine_event(ReplicaId id, std::uint64_t stamp);
  void schedule_engine(Replica& replica);
  void handle_outputs(Replica& replica, const EngineOutputs& outputs);
  void publish(Replica& replica);
  void set_conditions(Replica& replica);
  void set_pace(Replica& replica);

  // world_guests.cc: KV of hot models on other GPUs.
  void time_guests(Replica& hot);
  [[nodiscard]] double guests_on(const Gpu& gpu);
  void pace_host(Replica& hot);
  void send_guests_home(Replica& hot, bool lost);
  bool recall_guests(GpuId gpu, Reason reason);
  std::int64_t reserve_kv(Replica& replica, KvPlace place, std::int64_t blocks, bool whole);
  [[nodiscard]] KvRoom kv_room(const Replica& replica, KvPlace place) const;
  std::int64_t resize_kv(Replica& replica,
                         LeaseId lease,
                         const std::vector<Stage>& stages,
                         std::int64_t blocks,
                         std::int64_t limit,
                         bool whole);
  [[nodiscard]] bool room_for(const Replica& replica,
                              LeaseId lease,
                              const std::vector<Stage>& stages,
                              std::int64_t blocks,
                              std::int64_t limit);
  bool revoke_warm(GpuId gpu, ModelId for_whom);
  [[nodiscard]] bool outranked(const Replica& replica, GpuId gpu);
  void relieve(Replica& replica);
  void wake_starved(GpuId gpu);

  // world_faults.cc
  void fault(const PlannedFault& planned);
  void mend(const PlannedFault& planned);
  void fail_gpu(GpuId gpu);
  void mend_gpu(GpuId gpu);
  void slow_link(HostId host, LinkId link, double factor, bool begins);
  void slow_link(const PlannedFault& planned, bool begins);

  ClusterSpec cluster_;
  std::vector<ModelSpec> models_;
  ControlPlane& plane_;
  Observer& observer_;
  WorldOptions options_;
  ComputeSharing sharing_;

  Instant now_{};
  EventQueue<Event> queue_{};
  std::vector<Notice> notices_{};  ///< For the control plane, before the next event.
  std::vector<LiveRequest> requests_{};
  std::vector<std::uint32_t> free_requests_{};
  std::int64_t live_ = 0;
  bool more_arrivals_ = true;
  TraceRow upcoming_{};
  Instant last_arrival_{};
  RunEnd end_{};
  Instant progress_at_{};             ///< When a request last got further, or a load ended.
  Instant token_at_{};                ///< When a token was last read or written, or a request came.
  std::int64_t since_progress_ = 0;   ///< Events and notices since then.
  Instant planned_until_{};           ///< Timers that are no mere clock are set until then.
  std::int64_t planned_repairs_ = 0;  ///< Faults and repairs to come, which change what can happen.

  std::vector<std::unique_ptr<Replica>> replicas_{};  ///< By id; null when gone.
  std::vector<std::vector<ReplicaId>> by_model_{};
  std::vector<Gpu> gpus_{};
  std::vector<Host> hosts_{};
  std::vector<HostLinks> links_{};  ///< By host.
  std::vector<std::uint64_t>
      link_stamps_{};  ///< By host: of the newest event; older ones are void.
  std::map<TransferId, TransferOwner> transfer_owner_{};
  std::uint64_t transfers_given_ = 0;
  std::uint64_t image_uses_ = 0;
  std::vector<std::size_t> shape_of_{};  ///< By model: equal shapes have equal numbers.
  std::vector<std::size_t> gpu_kind_{};  ///< By host.
  mutable std::map<std::pair<std::size_t, std::size_t>, StepModel> step_models_{};
  Memory memory_{};
  std::vector<std::set<ReplicaId>> waiting_for_pages_{};  ///< By GPU.
  std::vector<std::set<ReplicaId>> starved_{};            ///< By GPU.
  std::vector<PlannedFault> faults_{};
  /// Factors of the faults that a link has at present.
  std::map<std::pair<HostId, LinkId>, std::vector<double>> slow_links_{};
  WorldCounts counts_{};
  double gpu_seconds_ = 0;
  std::int64_t gpus_used_ = 0;
  Instant gpus_since_{};
  std::uint64_t digest_ = 0;
};

/// Whether a GPU without anything else would hold the model's weights, or its part of them, the
/// engine, and KV of a few hundred tokens.
[[nodiscard]] bool fits(const World& world, ModelId model, GpuId gpu);
/// Whether the server has GPUs enough of that kind for an instance. O(its GPUs).
[[nodiscard]] bool fits(const World& world, ModelId model, HostId host);

/// Pages of KV on a GPU, of the replicas there. O(replicas there).
[[nodiscard]] std::int64_t kv_held(const World& world, GpuId gpu);

}  // namespace heddle::sim
