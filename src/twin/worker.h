#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "core/worker_core.h"
#include "twin/agenda.h"
#include "twin/contents.h"
#include "twin/core_record.h"
#include "twin/faults.h"
#include "twin/kv_count.h"
#include "twin/link.h"
#include "twin/pipes.h"
#include "twin/prefix_marks.h"
#include "twin/setup.h"
#include "twin/stage_messages.h"

namespace heddle::twin {

/// What the workers of a host have around them.
struct Surroundings {
  const std::map<ModelId, TwinModel>& models;
  std::uint64_t page_count = 0;  ///< Numbers of pages are below this.
  Agenda& agenda;
  Faults& faults;
  Pipes& pipes;
  Contents* contents = nullptr;  ///< Null: nobody checks what pages hold.
};

/// One life of a worker: the real WorkerCore, and in place of mapper and engine what they would
/// take. One thread.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  using OnReport = std::function<void(const Worker&, const core::WorkerReport&)>;
  using Record = CoreRecord<core::WorkerEvent, core::WorkerCommand>;

  /// Starts with `pages`. The worker outlives all that it puts on the agenda; what is around it
  /// outlives the worker.
  Worker(const TwinDevice& device,
         WorkerEpoch epoch,
         const std::vector<PageId>& pages,
         const Surroundings& around,
         OnReport on_report);

  void hear(const core::WorkerMessage& message);
  /// It does and hears nothing more.
  void die() { alive_ = false; }
  /// From now on the model's steps are those of a group, whose slowest device has this pace, and
  /// which these follow. What they do of a step takes no longer than here; they do it between their
  /// own.
  void lead(ModelId model,
            Duration pace_step,
            Duration pace_token,
            const std::vector<std::shared_ptr<Worker>>& followers);
  /// Its open model is in the group that `leader` leads for its model `group`.
  void follow(ModelId model, ModelId group, const std::shared_ptr<Worker>& leader);

  /// Its open model is a stage of a pipeline from now on; stage 0 leads.
  void join(PipeNo pipe, ModelId model, std::size_t stage);
  /// From the stage before.
  void hear_stage(PipeNo pipe, const StageMessage& message);
  /// A neighbour in the pipeline has gone.
  void lose_pipe(PipeNo pipe);

  /// From now on this device runs attention over the model's guests; null: none does.
  void meet(ModelId model, const std::shared_ptr<Worker>& host) { guest_hosts_[model] = host; }
  /// It runs attention over another's guests for so long, beside its own step.
  void serve_guests(Duration time) { guest_time_ += time; }

  [[nodiscard]] DeviceId device() const { return device_.device.id; }
  [[nodiscard]] WorkerEpoch epoch() const { return options_.epoch; }
  /// Steps so far.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] const core::WorkerOptions& options() const { return options_; }
  /// That have pages here, and are not on their way out.
  [[nodiscard]] std::vector<ModelId> open_models() const;
  /// That it has not been told to forget, and that have not ended.
  [[nodiscard]] std::size_t sequences() const { return sequences_.size(); }
  /// Kept only where contents are checked.
  [[nodiscard]] const Record& record() const { return record_; }
  /// Tokens of which KV was found.
  [[nodiscard]] std::int64_t prefix_tokens() const { return prefix_tokens_; }

 private:
  struct JoinPipe {
    PipeNo pipe{};
    ModelId model{};
    std::size_t stage = 0;
  };
  struct FromStage {
    PipeNo pipe{};
    StageMessage message{};
  };
  struct PipeGone {
    PipeNo pipe{};
  };
  /// Its shard is in a group from now on.
  struct JoinRanks {
    ModelId model{};
    ModelId group{};                              ///< The leader's shard.
    std::vector<std::weak_ptr<Worker>> others{};  ///< Of the leader all, else the leader.
    [[nodiscard]] bool leads() const { return model == group; }
  };
  /// The leader would have a share of so many pages.
  struct AskForShare {
    ModelId group{};
    std::int64_t pages = 0;
  };
  /// The leader has all ranks leave.
  struct AskToLeave {
    ModelId group{};
  };
  using Input = std::
      variant<core::WorkerEvent, JoinPipe, FromStage, PipeGone, JoinRanks, AskForShare, AskToLeave>;
  struct Heard {
    Input input{};
    Instant at{};
  };
  using SequenceId = core::SequenceId;

  struct Model {
    core::OpenModel open{};
    std::vector<PageId> window{};
    std::uint64_t ready = 0;  ///< Of the image, for the engine.
    std::uint64_t copied = 0;
    bool opened = false;
    bool closing = false;
    bool to_pool = false;
    bool abandoned = false;
    bool in_lockstep = false;  ///< It leads ranks, which run the same steps.
    Duration pace_step{};      ///< Of the slowest device of its group, if it leads one.
    Duration pace_token{};
  };
  struct Sequence {
    ModelId model{};
    std::int64_t prompt = 0;  ///< Tokens of it.
    std::uint32_t choice = 0;
    std::int64_t known = 0;     ///< Tokens.
    std::int64_t computed = 0;  ///< Of these.
    std::int64_t generated = 0;
    std::int64_t most = 0;   ///< To generate.
    bool compiling = false;  ///< Its grammar is.
    PrefixMarks marks{};     ///< Where contents are checked, or prefixes found.
    std::uint64_t life = 0;  ///< Another one when it begins anew.
    bool followed = false;   ///< Stages behind have something of it.
    bool in_pipe = false;    ///< A slice of it is away.
  };
  struct Step {
    policy::StepPlan plan{};
    std::set<SequenceId> starved{};
    Instant began{};
    Duration compute{};
    bool waits = false;        ///< For weights.
    bool gives_up = false;     ///< That, as there is something else to do.
    Duration hosted_before{};  ///< guest_time_ as it began.
    Duration guest_time{};     ///< And up to which it was made longer.
    core::GuestTimes guests{};
  };

  /// Of a leader: a batch that is away.
  struct Away {
    std::vector<StageSlice> slices{};
  };
  /// Of a leader: KV of a sequence, on its way to the whole model.
  struct Gathered {
    ModelId into{};
    std::int64_t asked = 0;
    std::int64_t there = 0;
    bool failed = false;
    PrefixMarks marks{};
    std::deque<StagePiece> pieces{};
  };
  /// Its place in a pipeline, and what an engine has of it (engine/pipe.h).
  struct Piped {
    PipeNo pipe{};
    ModelId model{};
    std::size_t stage = 0;
    std::uint64_t batches = 0;
    std::map<std::uint64_t, Away> away{};
    std::vector<SequenceId> dropped{};
    std::map<std::int64_t, core::PipeShare> followers{};
    std::map<SequenceId, std::int64_t> followed{};  ///< Of a follower: tokens computed.
  };
  /// The pages that a follower has apart for its pipeline.
  struct Reserve {
    Reserve(ModelId of,
            std::int64_t count,
            std::uint64_t page_count,
            std::span<const PageId> free,
            bool keep_prefixes)
        : model(of), pages(count), kv(page_count, free, keep_prefixes) {}
    ModelId model;
    std::int64_t pages;
    KvCount kv;
  };

  /// A shard that is in a group, with the group's share of this device.
  struct Rank {
    JoinRanks joined{};
    std::unique_ptr<Reserve> share{};
  };
  /// The ranks of a group agree about its share, or leave: until then nobody of them does anything
  /// else.
  struct Meeting {
    ModelId model{};
    std::int64_t least = 0;
    std::size_t awaited = 0;
  };

  void take_in(const JoinRanks& join);
  void take_in(const AskForShare& ask);
  void take_in(const AskToLeave& ask);
  [[nodiscard]] Rank* rank_in(ModelId group);
  void hear_offer(ModelId group, std::int64_t pages);
  void hear_left(ModelId group);
  void set_share(Rank& rank, std::int64_t pages);
  void leave_group(ModelId model);
  [[nodiscard]] KvCount& kv_of(ModelId model);
  [[nodiscard]] core::KvCounted counted() const;
  [[nodiscard]] bool kv_changed();
  [[nodiscard]] const Rank* led_in(const policy::StepPlan& plan) const;
  [[nodiscard]] Duration followers_busy(const Rank& leader) const;
  static void hold_followers(const Rank& leader);
  static void release_followers(const Rank& leader);
  void tell(const core::WorkerEvent& event);
  void queue(Input input);
  void take(const Input& input);
  void hear_of_pipe(PipeNo pipe, Input input);
  void take_in(const JoinPipe& join);
  void take_in(const PipeGone& gone);
  void take_in(const FromStage& said);
  void hear(const StageShare& share);
  void hear(const StageBatch& batch);
  void hear(const StagePiece& piece);
  void run_stage(StageBatch batch);
  [[nodiscard]] bool follow(const StageSlice& slice);
  void drop_followed(SequenceId id);
  void finish(const StageBatch& batch);
  void forget_in_pipe(SequenceId id, Sequence& sequence);
  [[nodiscard]] bool leads(ModelId model) const {
    return piped_ && piped_->stage == 0 && piped_->model == model;
  }
  void add_slice(const policy::StepSlice& slice, StageBatch& batch, core::StepDone& done);
  void send_batch(StageBatch batch);
  void give_back_reserve();
  void tell_gathered(SequenceId id);
  void work();
  void close(ModelId id);
  void at(Instant when, std::function<void()> what);
  [[nodiscard]] bool has(SequenceId sequence) const { return sequences_.contains(sequence); }

  void perform(const core::AdoptPages& command);
  void perform(const core::SurrenderPages& command);
  void perform(const core::FitWorkspace& command);
  void perform(const core::KeepGraphs& command);
  void perform(const core::OpenModel& command);
  void perform(const core::CloseModel& command);
  void perform(const core::LetGoWindow& /*command*/) {}
  void perform(const core::SetImageReady& command);
  void perform(const core::SetSourceReady& command);
  void perform(const core::PrioritiseCopy& command);
  void perform(const core::AddSequence& command);
  void perform(const core::TakePrefixes& command);
  void perform(const core::DropKept& /*command*/) {}
  void perform(const core::TrimCached& command);
  void perform(const core::PreemptSequence& command);
  void perform(const core::TakeGuestPages& command);
  void perform(const core::ReturnGuestPages& command);
  void perform(const core::MoveOut& command);
  void perform(const core::MoveHome& command);
  void perform(const core::ReservePipe& command);
  void perform(const core::SizeShare& command);
  void perform(const core::LeaveRanks& command);
  void perform(const core::GatherKv& command);
  void perform(const core::EndGather& command);
  void perform(const core::FetchKv& command);
  void perform(const core::EndFetch& /*command*/) {}
  void perform(const core::RemoveSequence& command);
  void perform(const core::RunStep& command);
  void perform(const core::Report& command);

  void resize(std::vector<PageId>& pages, std::int64_t count);
  void map_later(std::size_t pages, std::function<void()> what);
  void opened(ModelId model, bool fails);
  void copied(ModelId model, std::uint64_t bytes);
  [[nodiscard]] bool interrupts(const Input& input) const;
  void check_waiting_step();
  void end_step_or_go_on();
  void end_step();
  [[nodiscard]] core::SliceDone run_slice(SequenceId id, std::int64_t tokens);
  [[nodiscard]] Duration compute_time(const policy::StepPlan& plan) const;
  [[nodiscard]] bool samples(const policy::StepSlice& slice) const;
  /// Of its image, what a step of this batch reads.
  [[nodiscard]] std::uint64_t bytes_used(const policy::ModelBatch& batch) const;
  [[nodiscard]] bool has_weights(const policy::ModelBatch& batch) const;
  Duration paced_time(const policy::StepPlan& plan);
  Duration context_time(const policy::StepPlan& plan);

  const TwinDevice& device_;
  core::WorkerOptions options_;
  Surroundings around_;
  OnReport on_report_;
  core::WorkerCore core_;
  KvCount kv_;
  Link link_;
  std::vector<PageId> workspace_{};
  std::vector<PageId> graphs_{};
  std::map<ModelId, Model> models_{};
  std::map<SequenceId, Sequence> sequences_{};
  std::deque<Heard> inbox_{};
  std::vector<core::WorkerEvent> answers_{};  ///< To what is carried out now.
  std::optional<Step> step_{};                ///< That runs.
  std::map<ModelId, std::weak_ptr<Worker>> guest_hosts_{};
  Duration guest_time_{};  ///< For guests of others, so far.
  std::optional<Piped> piped_{};
  std::set<PipeNo> told_of_{};                    ///< That it is, or was, to join.
  std::map<PipeNo, std::vector<Input>> early_{};  ///< Of pipelines that it is about to join.
  std::unique_ptr<Reserve> reserve_{};
  std::map<ModelId, Rank> ranks_{};
  std::optional<Meeting> meeting_{};
  bool held_ = false;        ///< A step of its group runs, whose leader is another.
  Instant busy_until_{};     ///< Its last step ends then.
  bool runs_stage_ = false;  ///< It computes a batch of a leader elsewhere.
  std::map<SequenceId, Gathered> gathers_{};
  std::uint64_t pieces_asked_ = 0;
  std::uint64_t lives_ = 0;  ///< Of sequences.
  bool idle_said_ = true;
  Instant mapper_free_{};
  std::uint64_t steps_ = 0;
  std::int64_t prefix_tokens_ = 0;
  bool alive_ = true;
  Record record_{};
};

}  // namespace heddle::twin
