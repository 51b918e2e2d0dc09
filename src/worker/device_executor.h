#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/messages.h"
#include "core/worker_core.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/expert_slots.h"
#include "engine/gather.h"
#include "engine/kv_share.h"
#include "memory/page_pool.h"
#include "memory/window.h"
#include "rpc/messages.h"
#include "store/image_layout.h"
#include "worker/adapter_files.h"
#include "worker/grammars.h"
#include "worker/guest_time.h"
#include "worker/hot_guests.h"
#include "worker/lockstep.h"
#include "worker/mapper.h"
#include "worker/pacing.h"
#include "worker/peer_assist.h"
#include "worker/peer_load.h"
#include "worker/pipe.h"
#include "worker/pulse.h"

namespace heddle::worker {

/// Another GPU of this host, and a socket to its worker: to its PeerAssist, or to its PeerLoad.
struct Peer {
  int gpu = 0;           ///< As the driver counts.
  bool assists = false;  ///< This worker's PeerAssist serves it; else this one's loads go over it.
  Descriptor socket{};
};

/// Carries out what WorkerCore decides, on one device: the pool's pages, the windows and their
/// mapper, the engine. Decides nothing. Engine thread only, but for hear_early(). What it does with
/// sequences is in executor_sequences.cc, with groups in executor_groups.cc, with stages of
/// pipelines in executor_pipes.cc, with KV of other workers in executor_kv.cc, with experts that
/// take turns in executor_experts.cc.
class DeviceExecutor {
 public:
  struct Options {
    std::vector<PageId> pages{};  ///< The pool at the start.
    std::int64_t kv_pages = 0;    ///< As engine::EngineOptions has it.
    std::uint64_t load_bandwidth = 0;
    std::int64_t max_batch_tokens = 0;
    bool prefix_cache = false;
    rpc::Pace pace{};
    const GuestTime* guests = nullptr;  ///< What the device does for others; null: nothing.
  };
  struct Handlers {
    /// Something begun earlier has come to its end; called in the mapper's thread.
    std::function<void(core::WorkerEvent)> on_event{};
    /// finish_add() has something to do; called in the threads of grammars and adapters.
    std::function<void(core::SequenceId)> on_compiled{};
    /// A report for the other side; called in the engine thread, but for PagesReturned, which may
    /// come in the mapper's.
    std::function<void(core::WorkerReport)> on_report{};
    /// KV that another worker may have is asked for; called in the engine thread. Answered by
    /// hear_kv().
    std::function<void(rpc::KvAsk)> on_kv_ask{};
    /// Whether something waits for the engine thread that a step for want of weights should not
    /// hold up. May be empty: nothing does.
    std::function<bool()> has_news{};
    /// The device is lost; called in the mapper's thread. In the engine's, carry_out() says so.
    std::function<void(const Error&)> on_lost{};
  };

  /// In the engine thread. `device` outlives it. Fails as Engine::create does, or where there is no
  /// thread left.
  static Result<std::unique_ptr<DeviceExecutor>> create(device::Device& device,
                                                        const Options& options,
                                                        Handlers handlers);
  ~DeviceExecutor();

  /// What a model is, from then on.
  void describe(const rpc::ModelDescription& model);

  /// Carries out one command. What it gives rise to at once is appended to `events`, for the core
  /// to hear next. An error means that the device is lost.
  Result<void> carry_out(core::WorkerCommand command, std::vector<core::WorkerEvent>& events);

  /// Lends `peer` this device's link, or has loads go over its link, too, until its socket closes.
  void meet(Peer peer);

  /// From the next step on another device runs attention over the model's guests, or does not.
  void meet(const GuestHost& host);
  /// Maps memory of another GPU, which is lent next.
  void map(const GuestMemory& memory) { guests_->map(memory); }
  /// Why these pages are of no use to this device, which has let go of them; none: they are.
  [[nodiscard]] std::optional<Error> refuse(const core::LendGuests& lend);

  /// Makes an open model, which is a shard, part of a group, until it is closed or leaves. Of rank
  /// 0, what it carries out for the engine and that model is passed on to the others. A device may
  /// have several groups, all with the same leader; a step runs one of them. What the core is to
  /// hear is appended to `events`.
  void join(std::unique_ptr<Lockstep> lockstep, std::vector<core::WorkerEvent>& events);
  /// Of the other ranks: carries out what rank 0 passed on, for this shard, which joined. No core
  /// of this device hears of it but of its share, by `events`. Ignored once the shard was closed.
  /// An error as carry_out() has it.
  Result<void> follow(ModelId shard,
                      core::WorkerCommand command,
                      std::vector<core::WorkerEvent>& events);

  /// Makes an open model, which is a stage of a pipeline, part of it, until it is closed. What the
  /// core is to hear is appended to `events`, as by the next two.
  void join(std::unique_ptr<Pipe> pipe, std::vector<core::WorkerEvent>& events);
  /// Something has come from the stage before. An error as carry_out() has it, or that the stages
  /// do not agree.
  Result<void> hear_stage(std::uint64_t pipe,
                          std::string_view payload,
                          std::vector<core::WorkerEvent>& events);
  /// Another stage has gone.
  void leave_pipe(std::uint64_t pipe, std::vector<core::WorkerEvent>& events);

  /// Somebody has answered on_kv_ask. An error as carry_out() has it; likewise of the next.
  Result<void> hear_kv(rpc::KvGiven given, std::vector<core::WorkerEvent>& events);
  /// What there is here of what another worker asks for.
  Result<rpc::KvGiven> give_kv(const rpc::KvAsk& ask);

  /// Appends KvCounted where commands since the last call have changed what there is of KV.
  void count_kv(std::vector<core::WorkerEvent>& events);

  /// The mapper has closed the model (on_event said ModelClosed): its pages go where they belong.
  /// To be called before the core hears of it.
  void finish_close(ModelId model);

  /// The grammar of a sequence is compiled, or its adapter is open (on_compiled said so). What the
  /// core is to hear is appended to `events`: of another rank's sequence too, which that core
  /// ignores.
  void finish_add(core::SequenceId sequence, std::vector<core::WorkerEvent>& events);

  /// What a running step may be waiting for must not wait for the step to end: progress of images,
  /// and that one is given up. Any thread; after the message was queued for the core.
  void hear_early(const core::WorkerMessage& message);
  /// Something waits for the engine thread: a step that waits for weights gives up, and is run
  /// again when nothing is left to do. Any thread; after has_news() is true.
  void interrupt_waiting();
  /// A step that has waited for a minute gives up, so that it is seen to get on. Any thread.
  void interrupt_long_waiting(Instant now);

  [[nodiscard]] rpc::WorkerStats stats() const;
  /// The engine thread's own, in which steps are noted here.
  [[nodiscard]] Pulse& pulse() { return pulse_; }
  /// What its threads are at. Any thread.
  [[nodiscard]] std::vector<policy::ThreadPulse> pulses() const;

  /// Most pages that CUDA graphs may have of `pages` of `device`; 0 where it records nothing.
  [[nodiscard]] static std::int64_t most_graph_pages(const device::Device& device,
                                                     std::int64_t pages);

 private:
  struct Described {
    spec::ModelSpec spec{};
    store::ImageLayout layout{};
    std::optional<memory::Window> window{};  ///< Once reserved, for the life of this object.
  };
  /// A shard that is in a group.
  struct Rank {
    std::unique_ptr<Lockstep> lockstep{};
    std::set<core::SequenceId> followed{};  ///< Of the leader's core, what the engine has.
  };
  struct OpenedModel {
    core::ImageSource source = core::ImageSource::kGiven;
    std::vector<PageId> weights{};
    bool registered = false;  ///< The engine knows it: until it is closed, before its pages go.
    core::ImagePages after = core::ImagePages::kLeave;  ///< Where the weights' pages will go.
    std::unique_ptr<engine::ExpertSlots> experts{};     ///< Where they take turns.
  };
  /// A model that a step may use.
  struct Open {
    core::ImageSource source = core::ImageSource::kGiven;
    std::uint64_t image_bytes = 0;
    std::uint64_t resident_bytes = 0;  ///< As store::ImageLayout has it, as image_bytes.
  };

  DeviceExecutor(device::Device& device, const Options& options, Handlers handlers);

  void execute(const core::AdoptPages& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::SurrenderPages& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::FitWorkspace& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::KeepGraphs& command, std::vector<core::WorkerEvent>& events);
  void execute(core::OpenModel& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::CloseModel& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::LetGoWindow& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::SetImageReady& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::SetSourceReady& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::PrioritiseCopy& command, std::vector<core::WorkerEvent>& events);
  void execute(core::AddSequence& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::TakePrefixes& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::DropKept& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::TrimCached& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::PreemptSequence& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::TakeGuestPages& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::ReturnGuestPages& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::MoveOut& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::MoveHome& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::ReservePipe& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::SizeShare& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::LeaveRanks& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::GatherKv& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::EndGather& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::FetchKv& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::EndFetch& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::RemoveSequence& command, std::vector<core::WorkerEvent>& events);
  void execute(const core::RunStep& command, std::vector<core::WorkerEvent>& events);
  void execute(core::Report& command, std::vector<core::WorkerEvent>& events);

  [[nodiscard]] Lockstep* lockstep_of(const policy::StepPlan& plan) const;
  void meet_ranks(Lockstep& lockstep);
  void forget_followed(ModelId shard);
  void give_up_for_graphs(std::int64_t count);
  void take_from_graphs(std::int64_t count);
  Result<void> open(core::OpenModel& command, OpenedModel& opened);
  void add(core::AddSequence& command,
           AdapterFiles::Handle adapter,
           Grammars::Matcher grammar,
           std::vector<core::WorkerEvent>& events);
  void compile(core::AddSequence& command,
               AdapterFiles::Handle adapter,
               std::vector<core::WorkerEvent>& events);
  void refuse_sequence(core::SequenceId id,
                       const Error& error,
                       std::vector<core::WorkerEvent>& events);
  void await_grammars(const core::WorkerCommand& command, std::vector<core::WorkerEvent>& events);
  void remove(core::SequenceId id);
  void note_refused(core::SequenceId id);
  [[nodiscard]] static std::vector<core::SliceDone> slices_of(engine::StepOutcome& outcome);
  void forget_failed(const engine::StepOutcome& outcome);
  static void tell_failed(engine::StepOutcome& outcome, std::vector<core::WorkerEvent>& events);
  void hear_follower(const rpc::PipeFollower& follower, std::vector<core::WorkerEvent>& events);
  Result<void> hear_piece(engine::KvPiece& piece, std::vector<core::WorkerEvent>& events);
  void tell_gathered(core::SequenceId sequence,
                     const engine::GatherState& state,
                     std::vector<core::WorkerEvent>& events);
  void tell_fetched(core::SequenceId sequence,
                    const engine::KvHave& have,
                    std::vector<core::WorkerEvent>& events);
  Result<void> run_stage(engine::PipeBatch& batch);
  Result<void> finish(const engine::PipeBatch& batch, std::vector<core::WorkerEvent>& events);
  void send_batches(std::vector<engine::PipeBatch>& batches, core::StepDone& done);
  [[nodiscard]] bool waits_for_weights(const policy::StepPlan& plan) const;
  [[nodiscard]] policy::Doing kind_of(const policy::StepPlan& plan, bool waits) const;
  [[nodiscard]] core::KvCounted counted() const;
  void note_ready(ModelId model, std::uint64_t bytes);
  void pause_step();
  void begin_waiting(const policy::StepPlan& plan);
  void end_waiting(const policy::StepPlan& plan, std::vector<core::SequenceId>& unready);
  Open set_open(ModelId model, core::ImageSource source);
  [[nodiscard]] Result<void> place_experts(const core::OpenModel& command,
                                           const Described& model,
                                           std::span<const PageId> source,
                                           OpenedModel& opened);
  void count_experts(ModelId model, const engine::ExpertSlots& experts);
  void tell_experts(rpc::WorkerStats& stats) const;
  [[nodiscard]] static bool may_copy(const Open& open, std::uint64_t ready);
  void allow_copy(ModelId model, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t in_place(ModelId model, std::uint64_t copied);

  device::Device& device_;
  const std::uint64_t load_bandwidth_;
  Pacing pacing_;
  Handlers handlers_;
  memory::PagePool pool_;
  std::vector<PageId> graphs_{};  ///< Pages whose memory the driver has for CUDA graphs.
  std::map<ModelId, Described> described_{};
  std::map<ModelId, OpenedModel> opened_{};
  /// A sequence that waits for its adapter's files, then for its grammar.
  struct Waiting {
    core::AddSequence command{};
    AdapterFiles::Handle adapter{};  ///< Once it is open.
  };
  std::map<core::SequenceId, Waiting> compiling_{};
  /// Sequences that the engine would not take; the core may still have them removed.
  std::set<core::SequenceId> refused_{};
  bool kv_changed_ = false;  ///< Since the core was told what there is of it.
  std::optional<Error> lost_{};
  /// What others were asked for of a sequence, and have not answered.
  struct KvAsks {
    std::uint64_t first = 0;  ///< Number of the first ask.
    std::int64_t open = 0;    ///< That wait for an answer.
    std::vector<engine::KvPart> parts{};
  };
  std::map<core::SequenceId, KvAsks> kv_asks_{};
  std::uint64_t kv_asked_ = 0;
  std::map<ModelId, core::ExpertStatus> expert_counts_{};  ///< Of what is closed.
  std::unique_ptr<Pipe> pipe_{};
  std::map<std::int64_t, core::PipeShare> followers_{};  ///< Of a leader, by stage, as they say so.
  rpc::WorkerStats stats_{};
  Instant stepped_at_{};  ///< When the last step ended.
  Pulse pulse_{"engine"};

  std::mutex open_mutex_{};
  std::map<ModelId, Open> open_{};       // Guarded by open_mutex_, as the next two.
  std::set<ModelId> waited_for_{};       ///< Models for whose weights a step waits.
  Instant waits_since_{};                ///< When that step began.
  bool interrupted_ = false;             ///< That step was to give up.
  std::map<ModelId, Rank> ranks_{};      ///< Outlive the models in the engine.
  std::unique_ptr<HotGuests> guests_{};  ///< Likewise.
  std::unique_ptr<engine::Engine> engine_{};
  std::unique_ptr<Grammars> grammars_{};
  std::unique_ptr<AdapterFiles> adapter_files_{};
  std::unique_ptr<Mapper> mapper_{};  ///< Its thread ends before what it calls does.
  std::unique_ptr<PeerAssist> peer_assist_{};
  std::vector<std::unique_ptr<PeerLoad>> peer_loads_{};  ///< Use the mapper.
};

}  // namespace heddle::worker
