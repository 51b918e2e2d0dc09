#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/manager/manager_core.h"
#include "sim/planes/live_device.h"
#include "sim/planes/live_map.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// heddle: what `heddle serve` runs. core::ManagerCore decides, as it does there; this says to it
/// what happens in the world, in the words of workers, agents and gateways, and does in the world
/// what it commands. It decides nothing. In which order a device takes up prompts is
/// core::PrefillQueue's decision, as in a worker.
///
/// What differs from a live system, as the world has it so:
///  - Messages take no time.
///  - Each engine has context and workspace of its own (LiveMap).
///  - An engine begins when all its weights are there; a live one computes the first layers before.
///  - Shards of a group come and go together: where one has to leave, all do.
///  - What runs in an engine cannot be called back from it, so that requests do not follow their
///    model to another place: they end where they are.
///  - Of lent memory all comes back, or none.
///  - An external engine is suspended to host memory as a whole (support.h), where what it runs
///    waits for it; its own engine computes it anew.
///
/// Flags: `window` and `day` [s], `prewarm`, `replicas`, `pressure`, `value` (1 each) and `weave`
/// (0) as under `planner` of the configuration; `queue`, as `limits.queue` (512); `stages`, as
/// `coldStartHosts` (4); `shares` (1): other models may be beside sharded ones; `ttl` [s], as each
/// model's (0: none); `kv_gb` (8): KV of an external engine; `preload` (0): operators ask for what
/// lies in host memory when the world begins.
class LivePlane final : public ControlPlane {
 public:
  explicit LivePlane(Flags& flags);
  [[nodiscard]] ComputeSharing compute_sharing() const override { return ComputeSharing::kTurns; }
  [[nodiscard]] LinkRule link_rule() const override { return LinkRule::kClasses; }
  [[nodiscard]] std::optional<double> forecast_error() const override { return record_.error(); }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

  /// Hears each step of the manager, for tests.
  using Listener = std::function<void(
      Instant, const core::ManagerEvent&, const std::vector<core::ManagerCommand>&)>;
  void listen(Listener listener) { listener_ = std::move(listener); }

 private:
  /// The world at the moment of one notice.
  struct Turn {
    const World& world;
    Actions& actions;
  };
  /// A request that has arrived and not ended.
  struct Request {
    LiveId live{};
    std::optional<DeviceId> device{};  ///< Where it is; none: it waits.
    WorkerEpoch epoch{};
    ModelId as{};
    bool advanced = false;  ///< It had a token there.
  };
  /// A replica of the world that was ordered.
  struct Ordered {
    std::vector<std::pair<DeviceId, ModelId>> places{};  ///< By rank or stage.
    bool early = false;                                  ///< Nobody waits for it.
  };
  /// Pages that one GPU lends to KV of a model on another.
  struct Loan {
    ReplicaId replica{};    ///< Of the model.
    std::int64_t told = 0;  ///< Pages, as the manager knows.
  };
  /// An external engine.
  struct Engine {
    std::map<DeviceId, core::LoadOn> orders{};  ///< That bring it in, until all are there.
    std::optional<ReplicaId> replica{};         ///< Of the world; none: it is suspended, or ended.
    bool leaving = false;                       ///< It is on its way out, or frozen there.
    bool began = false;                         ///< It has served: something of it stays.
    std::uint64_t turn = 0;           ///< Of its ways out; timers of earlier ones are void.
    std::vector<RequestId> frozen{};  ///< It goes on with these when it is back.
  };
  /// Parts of a group or pipeline that were ordered, until all are.
  using Gathering = std::map<std::size_t, core::LoadOn>;

  // live.cc: notices, and what follows from them.
  void begin(const Turn& turn);
  void hear(core::ManagerEvent event) { inbox_.push_back(std::move(event)); }
  void settle(const Turn& turn);
  void step(const Turn& turn, const core::ManagerEvent& event);
  void tick(const Turn& turn, std::uint64_t tag);
  void set_timers(const Turn& turn);
  void judge_forecasts();
  void unload_idle(const Turn& turn);

  // live_requests.cc
  void arrived(const Turn& turn, const Notice& notice);
  void came_back(const Turn& turn, const Notice& notice);
  void finished(const Turn& turn, const Notice& notice);
  void starved(const Notice& notice);
  void admit(const Turn& turn, LiveDevice& device);
  void give_back(const LiveDevice& device, const LiveDevice::Waiting& waiting, bool recalled);
  void lose(DeviceId device, RequestId id);
  void do_without(const Turn& turn, LiveDevice& device);
  void perform(const Turn& turn, const core::Dispatch& dispatch);
  void perform(const Turn& turn, const core::FailRequest& fail);
  void perform(const Turn& turn, const core::TellWorker& tell);

  // live_loads.cc
  void perform(const Turn& turn, const core::LoadOn& load);
  void perform(const Turn& turn, const core::EvictFrom& evict);
  void perform(const Turn& turn, const core::FormGroup& form);
  void start(const Turn& turn, const Gathering& parts);
  [[nodiscard]] bool has_room(const Turn& turn, const core::LoadOn& load) const;
  [[nodiscard]] StartSpec start_spec(const Turn& turn, const Gathering& parts) const;
  void refuse(const core::LoadOn& load, Error reason);
  void refuse_waiting(const Turn& turn, ReplicaId replica);
  void open(const Turn& turn);
  void served(const Turn& turn, const Notice& notice);
  void gone(const Turn& turn, const Notice& notice);
  void tell_images(const Turn& turn, HostId host);

  // live_engines.cc
  void bring_in(const Turn& turn, const core::LoadOn& load);
  void begin_engine(const Turn& turn, ModelId model);
  [[nodiscard]] std::optional<Error> engine_refusal(const Turn& turn, const Engine& engine) const;
  [[nodiscard]] bool frees(const Turn& turn, GpuId gpu) const;
  void take_out(const Turn& turn, const core::EvictFrom& evict);
  void end_way_out(const Turn& turn, std::uint64_t tag);
  void open_engines(const Turn& turn);
  void engine_serves(const Turn& turn, ModelId model);
  void engine_gone(ModelId model);
  void forward(const Turn& turn, ModelId model, const core::Dispatch& dispatch);
  bool hand_over(const Turn& turn, const Engine& engine, RequestId id);
  void say(ModelId model, core::EngineNews news, Error reason = {});
  [[nodiscard]] std::optional<ModelId> engine_of(ReplicaId replica) const;

  // live_lives.cc
  void die(const Turn& turn, DeviceId device);
  void lose_host(const Turn& turn, HostId host, LiveDevice& place);
  void find_dead(const Turn& turn);
  void bury(const Turn& turn, LiveDevice& device);
  void gpu_up(const Turn& turn, GpuId gpu);

  // live_guests.cc
  void tell_peers(const Turn& turn);
  void tell_guests(const Turn& turn);
  void perform(const Turn& turn, const core::Weave& weave);
  void perform(const Turn& turn, const core::Unweave& unweave);

  // What changes nothing in the world.
  void perform(const Turn& turn, const core::WakeAt& wake);
  void perform(const Turn& turn, const core::Decision& decision);
  void perform(const Turn& turn, const core::LoadMeasured& measured);
  void perform(const Turn& /*turn*/, const core::PlanMeasured& /*measured*/) {}
  void perform(const Turn& /*turn*/, const core::Hold& /*hold*/) {}
  void perform(const Turn& /*turn*/, const core::AdminDone& /*done*/) {}
  void perform(const Turn& /*turn*/, const core::Drained& /*drained*/) {}
  void perform(const Turn& /*turn*/, const core::LimitKv& /*limit*/) {}  // No engine is elastic.

  [[nodiscard]] LiveDevice& device(DeviceId id) { return devices_.at(map_->gpu(id).value()); }
  [[nodiscard]] const LiveDevice& device(DeviceId id) const {
    return devices_.at(map_->gpu(id).value());
  }
  /// Has the device looked at before this notice is over.
  void touch(DeviceId device, bool of_residency);
  [[nodiscard]] static RequestId number_of(const Turn& turn, LiveId id) {
    return RequestId(turn.world.request(id).number.value() + 1);
  }
  template <class Report>
  void report(const LiveDevice& from, Report what) {
    hear(core::WorkerSaid{.device = from.id(), .epoch = from.epoch(), .report = std::move(what)});
  }

  /// Timers of the ways out of engines have numbers from here on.
  static constexpr std::uint64_t kEngineTags = std::uint64_t{1} << 48U;

  LiveOptions options_{};
  bool preload_ = false;
  Duration ttl_{};            ///< Models go that were idle for so long; 0: none does.
  core::TicketId ticket_{0};  ///< The last that was given out.
  Listener listener_{};
  core::ManagerCore manager_{};
  std::unique_ptr<LiveMap> map_{};
  std::vector<LiveDevice> devices_{};  ///< By GPU.
  std::deque<core::ManagerEvent> inbox_{};
  std::set<DeviceId> touched_{};
  std::map<RequestId, Request> requests_{};
  std::map<ReplicaId, Ordered> ordered_{};
  std::set<ReplicaId> opening_{};  ///< Of those, that have not begun.
  std::map<std::pair<ModelId, DeviceId>, Gathering> gathering_{};
  std::map<ModelId, Engine> engines_{};
  std::map<std::pair<DeviceId, ModelId>, core::Decision> noted_{};  ///< In this step.
  std::map<std::pair<DeviceId, ModelId>, Loan> loans_{};            ///< By who lends.
  std::map<HostId, std::set<ModelId>> images_{};  ///< By host of the world, as the manager knows.
  std::set<HostId> lost_hosts_{};                 ///< Of the world.
  std::optional<Instant> wakes_{};                ///< The manager's.
  std::optional<Instant> timer_{};                ///< That is set for it.
  std::map<DeviceId, Instant> looks_{};           ///< Timers of devices.
  std::set<GpuId> untimed_{};                     ///< Of which an earlier timer may be wanted.
  std::vector<double> expected_{};  ///< Load of this window, by model; empty: not known.
  bool forecasts_turn_ = false;     ///< A window has ended.
  ForecastRecord record_{};
};

}  // namespace heddle::sim
