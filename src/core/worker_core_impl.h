#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "core/gather_pace.h"
#include "core/prefill_queue.h"
#include "core/sequences.h"
#include "core/step_costs.h"
#include "core/worker_core.h"
#include "ledger/ledger.h"
#include "policy/weave.h"

namespace heddle::core {

/// How far a model is on its way in or out.
enum class Stage : std::uint8_t {
  kOpening,  ///< OpenModel was given.
  kOpen,
  kFailed,   ///< Opening failed, or the image will never be complete.
  kClosing,  ///< CloseModel was given.
};

/// How a rank stands to its group's share of KV. Of the pages, which are Resident::apart, all ranks
/// have equally many; rank 0 alone decides how many it would have.
struct GroupShare {
  bool leads = false;
  std::int64_t used = 0;   ///< Pages that hold KV of sequences.
  bool sizes = false;      ///< SizeShare was given and is not answered yet.
  bool starved = false;    ///< In its last step somebody found no page, and nobody was preempted.
  bool crowded = false;    ///< Nobody is admitted until somebody ends or it has grown.
  bool stalled = false;    ///< Not even its oldest sequence finds pages: steps would be in vain.
  bool idle = false;       ///< What it does not need is to be given back.
  Instant grows_at{};      ///< After it could not grow, it is not tried again before.
  bool ran = false;        ///< That step ran some of its sequences.
  std::int64_t had = 0;    ///< Pages, before it was sized last,
  std::int64_t asked = 0;  ///< and what it was to have then.
  std::int64_t most = 0;   ///< That it needed since `measured`.
  Instant measured{};
  std::uint64_t turn = 0;  ///< Of the step that last ran sequences of it, among those of groups.
};

/// A model that has pages of the device.
struct Resident {
  Stage stage = Stage::kOpening;
  bool draining = false;  ///< Takes no more requests; an eviction is next.
  bool steps_back =
      false;  ///< Likewise of rank 0, whose group is to end or has, until it is formed.
  bool exchanging = false;  ///< Being closed in exchange for pages that were given.
  ImageSource source = ImageSource::kGiven;
  bool in_part = false;  ///< It has a part of the image here, and reads the rest at the host.
  std::uint64_t image_bytes = 0;
  std::uint64_t ready_bytes = 0;
  policy::Footprint footprint{};
  std::optional<ledger::LeaseId> weights{};  ///< None once the image belongs to the host again.
  ledger::LeaseId kv{};
  std::int64_t kv_pages = 0;
  std::int64_t lent_pages = 0;   ///< Of another device, for its KV (guests).
  std::int64_t guest_pages = 0;  ///< Those of them that hold some.
  std::int64_t recalled = 0;     ///< Those of them that are to be given back.
  double attention = 0;          ///< Over the KV of one position, lately [ns]; 0: not measured.
  Duration guest_loss{};         ///< As ResidentReport has it, with the next.
  double reading = 0;
  /// Of the leader of a pipeline: what the others have. Empty while not all have said so.
  std::optional<std::vector<PipeShare>> followers{};
  /// Pages for KV that are apart from those that models share: of a follower for its pipeline's
  /// sequences, of a rank for its group's.
  std::optional<ledger::LeaseId> apart{};
  std::int64_t apart_pages = 0;
  std::optional<GroupShare> share{};  ///< Of a rank.

  [[nodiscard]] bool complete() const { return ready_bytes >= image_bytes; }
};

/// How far the KV of one sequence has come to the whole model.
struct GatheredPart {
  KvGathered said{};
  std::int64_t told = 0;  ///< Of the last GatherKv.
  bool waits = false;     ///< No more can be asked for until some of it has come.
};

/// The stages of a pipeline whose requests go on in the whole model, `into`.
struct Gathering {
  ModelId into{};
  /// The request whose KV comes at present; and that it is in no plan, as nothing lacks but what is
  /// away.
  std::optional<RequestId> request{};
  std::map<SequenceId, GatheredPart> parts{};
  GatherPace pace{};
  bool held = false;
  std::set<RequestId> stay{};  ///< Requests that end in the stages.
};

/// A request that was given up once its KV had come to the whole model, `into`.
struct MovedRequest {
  ModelId into{};
  /// Who had it computed: what came of them is held until the request is here again, or `until`.
  std::vector<SequenceId> held{};
  Instant until{};
  std::int64_t computed = 0;  ///< Tokens, of all its choices.
  std::int64_t found = 0;     ///< Those of them that it did not have to compute again.
};

/// A load or an eviction, waiting for its turn.
using Operation = std::variant<LoadModel, EvictModel, LendPages>;

/// The state of a WorkerCore. Residency is in worker_residency.cc, what models share in
/// worker_overhead.cc, who is admitted in worker_admission.cc, what is on pages of
/// other devices in worker_guests.cc, shares of groups in worker_shares.cc, pipelines in
/// worker_pipes.cc and worker_gathers.cc, KV that
/// other devices have in worker_fetches.cc, sequences and steps are in worker_steps.cc.
class WorkerCore::Impl {
 public:
  explicit Impl(const WorkerOptions& options)
      : options_(options), pool_(ledger::device_pool(options.device)) {
    ledger_.add_pool(pool_, options.pages);
    const ledger::Demand none{.pool = pool_};
    cached_ = *ledger_.reserve(ledger::LeaseKind::kKvCached, {}, {&none, 1});
    workspace_ = *ledger_.reserve(ledger::LeaseKind::kOverhead, {}, {&none, 1});
    graphs_ = *ledger_.reserve(ledger::LeaseKind::kOverhead, {}, {&none, 1});
  }

  void step(Instant now, const WorkerEvent& event, std::vector<WorkerCommand>& commands) {
    HEDDLE_CHECK(now >= now_);
    HEDDLE_CHECK(!stepping_ || std::holds_alternative<StepDone>(event));
    now_ = now;
    commands_ = &commands;
    std::visit([this](const auto& concrete) { on(concrete); }, event);
    if (!std::holds_alternative<EngineIdle>(event)) {
      carry_out();
      fit_workspace();
      tend_graphs();
      report_changes();
    }
    commands_ = nullptr;
  }

  [[nodiscard]] DeviceReport report() const;
  void check_invariants() const;

 private:
  void on(const WorkerMessage& message) {
    std::visit([this](const auto& concrete) { on(concrete); }, message);
  }
  void on(const LoadModel& load) { operations_.emplace_back(load); }
  void on(const EvictModel& evict);
  void on(const LendPages& lend) { operations_.emplace_back(lend); }
  void on(const GivePages& give);
  void on(const LendGuests& lend);
  void on(const RecallGuests& recall);
  void on(const ImageGone& gone) { act(LetGoWindow{.model = gone.model}); }
  void on(const ForgetKv& forget) { act(DropKept{.model = forget.model}); }
  void on(const ImageProgress& progress);
  void on(const Submit& submit);
  void on(const CancelRequest& cancel);
  void on(const RecallRequests& recall);
  void on(const Gather& gather);
  void on(const FinishChoice& finish);
  void on(const NoPages& none);
  void on(const ModelOpened& opened);
  void on(const OpenFailed& failed);
  void on(const ModelClosed& closed);
  void on(const CopyProgress& progress);
  void on(const GraphsKept& kept);
  void on(const SequenceRefused& refused);
  void on(const SequenceReady& ready);
  void on(const PrefixesTaken& taken);
  void on(const GuestsMoved& moved);
  void on(const KvCounted& counted);
  void on(const PipeJoined& joined);
  void on(const PipeReady& ready);
  void on(const PipeLeft& left);
  void on(const PipeReturned& returned);
  void on(const FitShare& fit);
  void on(const GroupJoined& joined);
  void on(const ShareAsked& asked);
  void on(const ShareSet& set);
  void on(const StepBack& back);
  void on(const RanksLeft& left);
  void on(const KvGathered& gathered);
  void on(const KvFetched& fetched);
  void on(const StepDone& done);
  void on(const EngineIdle& idle);

  // Residency: one operation after the other, in the order in which they came.
  void carry_out();
  bool carry_out(const LoadModel& load);
  bool carry_out(const EvictModel& evict);
  bool carry_out(const LendPages& lend);
  [[nodiscard]] bool find_room(std::int64_t need, bool& wait);
  void open(const LoadModel& load);
  void memory_came_free();
  void close(ModelId id, Resident& model, const EvictModel& evict);
  void refuse(const LoadModel& load, Error reason);
  void refuse(const EvictModel& evict, Error reason);
  void refuse(const LendPages& lend, Error reason);
  [[nodiscard]] std::optional<Error> staleness(const Basis& basis) const;
  void give_back_requests(ModelId model);
  void give_back(RequestId request, bool recalled);
  void set_ready(ModelId id, std::uint64_t bytes);

  // Overhead.
  [[nodiscard]] std::int64_t workspace_with(std::int64_t pages) const;
  void fit_workspace();
  [[nodiscard]] std::int64_t graphs_wanted() const;
  void tend_graphs();
  bool give_up_graphs();
  void keep_graphs(std::int64_t pages);

  // Guests.
  bool tend_guests();
  bool move_guests_out(ModelId id, const Resident& model);
  bool bring_guests_home(ModelId id, Resident& model);
  void return_guests(ModelId id, Resident& model, std::int64_t count);
  [[nodiscard]] std::vector<policy::WeaveMove> guest_moves(ModelId id, const Resident& model) const;
  [[nodiscard]] bool can_have_more_guests() const;
  void learn_guest_times(const StepDone& done);
  [[nodiscard]] Duration attention(ModelId id, const Resident& model) const;
  void preempt(SequenceId id);

  // KV that is apart, and the shares of groups.
  void set_apart(ModelId id, Resident& model, std::int64_t pages);
  [[nodiscard]] std::int64_t can_have_apart(const Resident& model) const;
  void offer(ModelId id, Resident& model, std::int64_t pages);
  [[nodiscard]] bool sizes_share() const;
  bool tend_shares();
  bool tend_share(ModelId id, Resident& model);
  void could_not_grow(ModelId id, Resident& model);
  [[nodiscard]] std::int64_t share_need(ModelId id, const Resident& model) const;
  void relieve_share(ModelId id, Resident& model);
  [[nodiscard]] const Sequence* oldest_of(ModelId id) const;
  [[nodiscard]] const Sequence* oldest_common() const;
  [[nodiscard]] bool is_apart(ModelId id) const;
  [[nodiscard]] std::optional<ModelId> stalled_share() const;
  [[nodiscard]] const Sequence* oldest_stalled() const;
  [[nodiscard]] std::vector<policy::AdmissionView> common_views() const;
  void tell_share_shortage(DeviceReport& report) const;

  // Pipelines.
  void leave_pipe(ModelId id, Resident& model);
  void refuse_in_pipe(SequenceId id);
  [[nodiscard]] static std::optional<std::int64_t> pages_in_pipe(const Resident& model);
  [[nodiscard]] static std::optional<Error> too_long_for_pipe(const Resident& model,
                                                              std::int64_t tokens);
  void take_turns(std::vector<policy::SequenceView>& views) const;
  void choose_group(std::vector<policy::SequenceView>& views) const;
  void note_group_step();

  // KV that moves from stages to the whole model.
  bool tend_gathers();
  bool tend(ModelId stages, Gathering& gathering);
  void choose_request(ModelId stages, Gathering& gathering);
  [[nodiscard]] bool fits(const Gathering& gathering, RequestId request) const;
  bool ask_for_kv(Gathering& gathering);
  void hold_or_give_up(Gathering& gathering);
  void stop(Gathering& gathering);
  bool drop_gathers();
  void end_gathers(ModelId model);
  void let_go(MovedRequest& moved);
  void note_arrival(const Submit& submit);
  void note_found(const PrefixTaken& prefix);
  bool tell_moved();
  [[nodiscard]] bool is_held(const Sequence& sequence) const;
  [[nodiscard]] bool has_kv(ModelId model) const;

  // KV that other devices have.
  void recall_begun(const RecallRequests& recall);
  void begin_fetch(const Sequence& sequence);
  void end_fetch(SequenceId id);

  // Sequences.
  [[nodiscard]] std::optional<Error> unacceptable(const Submit& submit,
                                                  const Resident& model) const;
  void take_in(const std::vector<SliceDone>& slices,
               const std::vector<SequenceId>& unready,
               const KvCounted& counted);
  void fail_request(RequestId request, Error error);
  void end_sequence(SequenceId id);
  void forget_sequence(SequenceId id);
  void settle_leases(ModelId id);
  void set_kv(Resident& model, std::int64_t pages);
  void set_cached(std::int64_t pages);
  void move_pages(ledger::LeaseId lease, std::int64_t before, std::int64_t after);
  void trim_cached(std::int64_t keep, ledger::DropReason reason);
  void admit();
  void admit_by_deadline(std::set<ModelId> full);
  bool admit_begun(const std::vector<const policy::AdmissionView*>& begun,
                   policy::AdmissionRoom& room,
                   std::set<ModelId>& full);
  void take(SequenceId id);
  [[nodiscard]] std::set<ModelId> crowded() const;
  void admit_first_if_none();
  [[nodiscard]] std::vector<policy::AdmissionModel> admission_models() const;
  [[nodiscard]] PrefillState prefill_state() const;
  [[nodiscard]] bool engine_has_enough() const;
  [[nodiscard]] std::vector<QueuedPrefill> queued_prefills() const;
  [[nodiscard]] Duration prefill_left(const Sequence& sequence) const;
  [[nodiscard]] bool finds_prompt(const Sequence& sequence) const;
  [[nodiscard]] std::optional<std::int64_t> kv_limit(const Resident& model) const;
  void keep_within_limits();
  [[nodiscard]] std::vector<policy::SequenceView> step_views() const;
  [[nodiscard]] bool waits_for_prompt(const Sequence& sequence) const;
  bool ask_for_prefixes();
  void relieve(const StepDone& done);
  void relieve_common(bool ran);
  void do_without();
  void pack_oldest();
  void give_up_oldest();
  void learn(const StepDone& done);
  [[nodiscard]] std::set<ModelId> runnable() const;
  [[nodiscard]] std::int64_t kv_pages_total() const;
  [[nodiscard]] std::int64_t pages_short(const Sequence& sequence) const;
  [[nodiscard]] std::int64_t lacking_pages() const;
  [[nodiscard]] std::map<ModelId, std::int64_t> late_sequences() const;
  void tell_shortage(DeviceReport& report) const;
  void tell_common_shortage(DeviceReport& report) const;

  void report_changes();
  template <class T>
  void say(T report) {
    commands_->push_back(Report{.report = std::move(report)});
  }
  template <class T>
  void act(T command) {
    commands_->push_back(std::move(command));
  }

  WorkerOptions options_;
  ledger::PoolId pool_;
  Instant now_{};
  std::vector<WorkerCommand>* commands_ = nullptr;

  ledger::Ledger ledger_{};
  ledger::LeaseId cached_{};  ///< Of the prefixes of all models.
  /// Pages of it. Between a command that changes them and KvCounted it may be more than there are,
  /// never less.
  std::int64_t cached_pages_ = 0;
  ledger::LeaseId workspace_{};
  std::int64_t workspace_pages_ = 0;
  ledger::LeaseId graphs_{};
  std::int64_t graph_pages_ = 0;
  std::optional<std::int64_t> graphs_asked_{};  ///< Of the KeepGraphs not answered yet.
  bool graphs_stuck_ = false;                   ///< Their pages could not be had again.
  std::uint64_t version_ = 0;
  std::map<ModelId, Resident> models_{};
  std::deque<Operation> operations_{};

  Sequences sequences_{};
  std::map<ModelId, Gathering> gatherings_{};  ///< By the leader's stage.
  std::map<RequestId, MovedRequest> moved_{};
  StepCosts costs_{};
  PrefillQueue queue_{};
  ModelId told_short_{};  ///< In the last report.
  std::uint64_t admissions_ = 0;
  std::map<ModelId, SequenceId> held_up_{};  ///< Of a divided device: who is next in a full part.
  /// How much longer than alone prefill takes while others decode, in steps that it fills; >= 1.
  Duration step_time_{};  ///< As DeviceReport has it.
  double slowdown_ = 1.0;
  bool stepping_ = false;
  std::uint64_t group_steps_ = 0;  ///< Steps so far that ran a group.
  policy::StepPlan plan_{};
  std::set<SequenceId> asked_{};  ///< For whom a prefix was sought since the last step.
  bool crowded_ = false;          ///< Pages ran out; nobody is admitted until some have come free.
  bool stalled_ = false;  ///< Not even the oldest sequence finds pages; steps would be in vain.

  std::optional<Instant> reported_at_{};
  bool residency_changed_ = true;
  bool counts_changed_ = false;
};

}  // namespace heddle::core
