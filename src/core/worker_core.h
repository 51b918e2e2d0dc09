#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/messages.h"
#include "ledger/drop_reason.h"
#include "policy/admission.h"
#include "policy/batching.h"
#include "policy/device_queue.h"
#include "spec/sampling.h"

namespace heddle::core {

using policy::SequenceId;

/// What a worker is told at its start.
struct WorkerOptions {
  DeviceId device{};
  WorkerEpoch epoch{};
  std::int64_t pages = 0;  ///< The pool at the start of this life, all free.
  /// Of the device, with those that are lent to engines now and may come back; 0: as many.
  std::int64_t device_pages = 0;
  policy::StepOptions step{};
  /// Of the pages that the resident models leave to KV, how many cached prefixes may have at most,
  /// in percent; 0: nothing is cached.
  std::int64_t prefix_cache = 0;
  /// The order in which prefills of all models are taken up: kArrival is strictly by age.
  policy::QueueRule queue = policy::QueueRule::kMooreHodgson;
  /// In how many parts of equal size the device is divided, each for one model's weights and KV;
  /// 0: whoever needs pages has them.
  std::int64_t fixed_parts = 0;
  /// Most that CUDA graphs of steps may have; 0: the device records nothing.
  std::int64_t graph_pages = 0;
  Duration report_interval = std::chrono::milliseconds(100);  ///< Of reports that tell only of KV.
};

// ---- What a worker hears, beside WorkerMessage ----

/// OpenModel was carried out: the window is mapped, or its copy has begun.
struct ModelOpened {
  ModelId model{};
};
/// OpenModel failed. The model is of no use; CloseModel follows in time.
struct OpenFailed {
  ModelId model{};
  Error error{};
};
/// CloseModel was carried out: nothing refers to its pages any more. What becomes free is put into
/// the pool as this is said, not before: a step that runs would take what the ledger does not know.
struct ModelClosed {
  ModelId model{};
};
/// Of an image that is copied: the first `bytes` are in the window.
struct CopyProgress {
  ModelId model{};
  std::uint64_t bytes = 0;
};
/// KeepGraphs was carried out: so many pages are given up for CUDA graphs now. More than were
/// asked for where their memory could not be had again.
struct GraphsKept {
  std::int64_t pages = 0;
};
/// The engine would not take a sequence (AddSequence failed).
struct SequenceRefused {
  SequenceId sequence{};
  Error error{};
};
/// The engine has a sequence with a grammar, which had to be compiled, or with an adapter, whose
/// files had to be opened: it may take part in steps.
struct SequenceReady {
  SequenceId sequence{};
};
/// What a step did for one slice; engine::SliceResult in the words of this layer.
struct SliceDone {
  SequenceId sequence{};
  std::int64_t computed = 0;       ///< Tokens whose KV is cached now.
  std::optional<TokenId> token{};  ///< Sampled, if the slice reached the last known token.
  std::int64_t position = 0;       ///< Index of `token` among the generated ones, from 0.
  spec::FinishReason finish = spec::FinishReason::kNone;
  spec::TokenDetails details{};
};
struct KvHeld {
  ModelId model{};
  std::int64_t pages = 0;
  std::int64_t guest_pages = 0;  ///< Lent ones that hold some.
};
/// TakePrefixes was carried out: what each sequence has computed now.
struct PrefixTaken {
  SequenceId sequence{};
  std::int64_t computed = 0;
};
struct PrefixesTaken {
  std::vector<PrefixTaken> sequences{};
};
/// The KV of sequences and prefixes, as the engine counts it. Said after commands that change it:
/// TakePrefixes, TrimCached, PreemptSequence, RemoveSequence, CloseModel.
struct KvCounted {
  std::vector<KvHeld> kv{};       ///< Of every open model.
  std::int64_t cached_pages = 0;  ///< Hold prefixes that no sequence uses, of all models.
};
/// MoveOut or MoveHome was carried out: so many first positions of the sequence are away now.
struct GuestsMoved {
  SequenceId sequence{};
  std::int64_t tokens = 0;
  KvCounted counted{};
};
/// How long attention took in a step that read no prompts and had guests.
struct GuestTimes {
  Duration home{};             ///< Attention while the host was at its part.
  std::int64_t positions = 0;  ///< Whose KV that read; 0: nothing was measured.
  Duration waited{};           ///< For the host, after that.
};
/// This open model is a stage of a pipeline, and joined to the others from now on
/// (docs/contracts/pipe.md). Stage 0 leads.
struct PipeJoined {
  ModelId model{};
  std::int64_t stage = 0;
  bool shared = false;  ///< Other models run on the device.
};
/// What a follower has for KV of its pipeline's sequences.
struct PipeShare {
  std::vector<policy::KvGroup> kv{};
  std::int64_t pages = 0;
};
/// Of the leader: all followers have reserved their pages.
struct PipeReady {
  ModelId model{};
  std::vector<PipeShare> followers{};
};
/// Of a follower: the pipeline is no more, though the model may stay.
struct PipeLeft {
  ModelId model{};
};
/// Of the leader: a batch is back, and its step has ended. What StepDone says of the whole step.
struct PipeReturned {
  ModelId model{};
  std::vector<SliceDone> slices{};
  std::vector<SequenceId> unready{};
  /// Followers have forgotten them: they lacked pages, or a prefix that was found here. Nothing of
  /// theirs changed here.
  std::vector<SequenceId> refused{};
  KvCounted counted{};
};
/// This open model is a shard, and in lockstep with the others of its group from now on; rank 0
/// leads. Its KV has a share of the device that all ranks have alike, at first of no pages
/// (docs/contracts/groups.md).
struct GroupJoined {
  ModelId model{};
  bool leads = false;
};
/// Of another rank than 0: the leader would have a share of so many pages. Answered at once by
/// SizeShare, with what this device has for it.
struct ShareAsked {
  ModelId model{};
  std::int64_t pages = 0;
};
/// SizeShare was carried out, on all ranks alike: the share has so many pages.
struct ShareSet {
  ModelId model{};
  std::int64_t pages = 0;
};
/// LeaveRanks was carried out, on all ranks: this open model is a staged shard, without a share.
struct RanksLeft {
  ModelId model{};
};
/// How far the KV of a sequence of stages has come to the whole model: said in answer to GatherKv,
/// and again with each part of it that arrives.
struct KvGathered {
  SequenceId sequence{};
  std::int64_t asked = 0;  ///< First positions that the stages were asked for.
  std::int64_t there = 0;  ///< Those of them that have arrived.
  /// What a request with these tokens would find there, and what that is a multiple of.
  std::int64_t usable = 0;
  std::int64_t block_tokens = 1;
  /// It cannot be had: pages lack, a stage has forgotten it, or it has more state than KV.
  bool failed = false;
  KvCounted counted{};
};
/// What FetchKv has come to: so many first tokens of the sequence have KV now.
struct KvFetched {
  SequenceId sequence{};
  std::int64_t computed = 0;
  bool done = false;  ///< No more is to be had.
  KvCounted counted{};
};
/// The step that RunStep began has ended; the first thing said after it.
struct StepDone {
  std::vector<SliceDone> slices{};
  std::vector<SequenceId> starved{};  ///< No page was free for them; nothing of theirs changed.
  std::vector<SequenceId> unready{};  ///< Their image was abandoned; nothing of theirs changed.
  /// Their slices go on to other stages of a pipeline: PipeReturned tells what became of them.
  std::vector<SequenceId> in_pipe{};
  KvCounted counted{};
  Duration took{};
  GuestTimes guests{};
  Duration hosting{};  ///< Of `took`: attention over guests of other devices meanwhile.
};
/// All that has come was said and the engine is free: run a step, if there is anything to run.
struct EngineIdle {};

using WorkerEvent = std::variant<WorkerMessage,
                                 ModelOpened,
                                 OpenFailed,
                                 ModelClosed,
                                 CopyProgress,
                                 GraphsKept,
                                 SequenceRefused,
                                 SequenceReady,
                                 PrefixesTaken,
                                 GuestsMoved,
                                 KvCounted,
                                 PipeJoined,
                                 PipeReady,
                                 PipeLeft,
                                 PipeReturned,
                                 GroupJoined,
                                 ShareAsked,
                                 ShareSet,
                                 RanksLeft,
                                 KvGathered,
                                 KvFetched,
                                 StepDone,
                                 EngineIdle>;

// ---- What a worker does. In order; done at once, but for what is left to the mapper. ----

/// Put these pages, which were the host's, into the pool as free ones.
struct AdoptPages {
  std::vector<PageId> pages{};
};
/// Take `count` free pages out of the pool and say PagesReturned{model, pages}.
struct SurrenderPages {
  ModelId model{};
  std::int64_t count = 0;
};
/// Engine::set_workspace: from now on the workspace of the device, which its models share, has so
/// many pages of the pool.
struct FitWorkspace {
  std::int64_t pages = 0;
};
/// Engine::set_graph_bytes: CUDA graphs of steps may take as much memory as so many pages have, and
/// those not had before are taken from the pool and given back to the driver, whose CUDA graphs'
/// memory is. With fewer, CUDA graphs are forgotten and pages taken again. Answered by
/// GraphsKept.
struct KeepGraphs {
  std::int64_t pages = 0;
};
/// Register the model with the engine at its window; have the mapper map `pages` there (kGiven), or
/// take as many from the pool, map those and copy (kShared). Answered by ModelOpened or OpenFailed.
struct OpenModel {
  ModelId model{};
  ImageSource source = ImageSource::kGiven;
  std::vector<PageId> pages{};
  std::uint64_t image_bytes = 0;
  std::uint64_t ready_bytes = 0;  ///< Of `pages`; SetImageReady or SetSourceReady tell the rest.
  /// Pages of the device that it has, where that is a part of the image alone; 0: as many as the
  /// image.
  std::int64_t part_pages = 0;
};
enum class ImagePages : std::uint8_t {
  kLeave,   ///< They are the host's from then on.
  kToPool,  ///< They become free pages of this device.
};
/// Stop a copy that runs; have the mapper close the window, which may stay mapped for when the
/// model comes back; forget the model in the engine. Answered by ModelClosed, however OpenModel
/// stands.
struct CloseModel {
  ModelId model{};
  ImagePages image = ImagePages::kLeave;
};
/// Of a model that was closed: what its window still shows is to go.
struct LetGoWindow {
  ModelId model{};
};
/// Engine::set_image_ready: the first `bytes` of the image may be used.
struct SetImageReady {
  ModelId model{};
  std::uint64_t bytes = 0;
};
/// Of an image that is copied: the first `bytes` of the source are in place now.
struct SetSourceReady {
  ModelId model{};
  std::uint64_t bytes = 0;
};
/// Copy this image before others: somebody waits for it.
struct PrioritiseCopy {
  ModelId model{};
};
/// Engine::add_sequence; SequenceRefused if it fails. Of one whose parameters have a grammar that
/// is compiled first, or whose adapter is opened first, meanwhile nothing waits for it:
/// SequenceReady or SequenceRefused follows, and no other command but RemoveSequence names it
/// before.
struct AddSequence {
  SequenceId sequence{};
  ModelId model{};
  std::vector<TokenId> tokens{};   ///< Prompt, then earlier output.
  std::int64_t prompt_tokens = 0;  ///< How many of `tokens` are prompt.
  spec::SamplingParams params{};
  std::string cache_salt{};  ///< Only sequences of the same salt share cached prefixes.
  std::string adapter{};     ///< As Submit has it.
};
/// Engine::take_prefix of sequences that have computed nothing and will be in the next step.
/// Answered by PrefixesTaken.
struct TakePrefixes {
  std::vector<SequenceId> sequences{};
  /// Of each, what computing all its tokens would take: what KV that the host keeps saves.
  std::vector<Duration> computing{};
};
/// Engine::trim_cached: drop cached pages until at most `keep` are left.
struct TrimCached {
  std::int64_t keep = 0;
  ledger::DropReason reason = ledger::DropReason::kBound;
};
/// KeptKv::forget: what the host keeps of the model's KV is wrong.
struct DropKept {
  ModelId model{};
};
/// Engine::preempt.
struct PreemptSequence {
  SequenceId sequence{};
};
/// Guests::lend.
struct TakeGuestPages {
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Guests::give_back: `count` lent pages hold nothing; say GuestsReturned of them.
struct ReturnGuestPages {
  ModelId model{};
  std::int64_t count = 0;
};
/// Guests::move_out of all that can be moved of the first `tokens` positions. Answered by
/// GuestsMoved.
struct MoveOut {
  SequenceId sequence{};
  std::int64_t tokens = 0;
};
/// Guests::move_home. Answered by GuestsMoved.
struct MoveHome {
  SequenceId sequence{};
};
/// Pipes::reserve: of a follower, the pipeline's sequences have so many pages from now on; 0: the
/// pipeline is no more. The leader hears of it, and of the KV groups.
struct ReservePipe {
  ModelId model{};
  std::int64_t pages = 0;
  std::vector<policy::KvGroup> kv{};
};
/// Of each rank of a group, at the same place among its commands: wait for all ranks, then give the
/// share of KV as many pages as the rank has that offers the fewest (Engine::set_share), but no
/// fewer than are in use. The core has reserved what it offers. Answered by ShareSet.
struct SizeShare {
  ModelId model{};
  std::int64_t pages = 0;
};
/// Of rank 0, whose group has no sequences: all ranks give up the share, with what is cached there,
/// and meet; then none is in the group. The others do the same without a command of their cores.
/// Answered by RanksLeft, on all ranks.
struct LeaveRanks {
  ModelId model{};
};
/// Gathers::ask: have the KV of the first `tokens` positions of a sequence of stages come to the
/// whole model `into`, as far as they have not been asked for. Answered by KvGathered.
struct GatherKv {
  SequenceId sequence{};
  ModelId into{};
  std::int64_t tokens = 0;
};
/// Gathers::end: what has come of this sequence is a cached prefix like any other.
struct EndGather {
  SequenceId sequence{};
};
/// Ask `from` for the next part of the KV of an admitted sequence, and put it there
/// (engine::KvShares). Answered by KvFetched, also where somebody is gone.
struct FetchKv {
  SequenceId sequence{};
  std::vector<KvSource> from{};
};
/// The sequence waits for no more of it: it goes on with what it has. Answered by KvCounted.
struct EndFetch {
  SequenceId sequence{};
};
/// Engine::remove_sequence.
struct RemoveSequence {
  SequenceId sequence{};
};
/// Engine::run, then StepDone. Only ever given in answer to EngineIdle, as the last command. A step
/// may wait for weights, so while it runs the thread that reads the link also passes ImageProgress
/// of open models straight on, as SetImageReady or SetSourceReady would, and EvictModel{kNow} to
/// Engine::abandon_image.
struct RunStep {
  policy::StepPlan plan{};
};
/// Send this to the other side.
struct Report {
  WorkerReport report{};
};

using WorkerCommand = std::variant<AdoptPages,
                                   SurrenderPages,
                                   FitWorkspace,
                                   KeepGraphs,
                                   OpenModel,
                                   CloseModel,
                                   LetGoWindow,
                                   SetImageReady,
                                   SetSourceReady,
                                   PrioritiseCopy,
                                   AddSequence,
                                   TakePrefixes,
                                   DropKept,
                                   TrimCached,
                                   PreemptSequence,
                                   TakeGuestPages,
                                   ReturnGuestPages,
                                   MoveOut,
                                   MoveHome,
                                   ReservePipe,
                                   SizeShare,
                                   LeaveRanks,
                                   GatherKv,
                                   EndGather,
                                   FetchKv,
                                   EndFetch,
                                   RemoveSequence,
                                   RunStep,
                                   Report>;

/// What one device's worker decides: which models are resident and in which state, who holds how
/// many pages (it owns the ledger of the device), which sequences run in the next step, who gives
/// way when pages run out. Pages of cached prefixes are as good as free: they are given up before
/// there is another victim. What the models share beside pages of their own is `overhead`: a
/// workspace as large as the largest of theirs, and CUDA graphs, which go where nothing else makes
/// room. Decides, never acts; equal events at equal times give equal commands. Used by one
/// thread, the engine thread.
///
/// A model is absent, loading, warm (resident, nothing runs), serving or draining. Loads and
/// evictions are carried out in the order in which they came.
class WorkerCore {
 public:
  explicit WorkerCore(const WorkerOptions& options);
  ~WorkerCore();
  WorkerCore(WorkerCore&&) noexcept;
  WorkerCore& operator=(WorkerCore&&) noexcept;

  /// Takes in one event and appends the commands it gives rise to. Times never go backwards.
  void step(Instant now, const WorkerEvent& event, std::vector<WorkerCommand>& commands);

  /// What DeviceReport would say now.
  [[nodiscard]] DeviceReport report() const;

  /// CHECK-fails if the state contradicts itself.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::core
