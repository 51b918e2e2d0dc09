#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/serving.h"
#include "ledger/ledger.h"
#include "policy/admission.h"
#include "spec/sampling.h"

/// What the agent's side and a worker say to each other. Links keep order and deliver once or die;
/// a link belongs to one life (epoch) of one worker. docs/contracts/cores.md has the rules.
namespace heddle::core {

/// To every core: the time asked for with WakeAt has come.
struct Tick {};
/// From every core: say Tick at this time. Replaces the time asked for before.
struct WakeAt {
  Instant at{};
};

/// What a command was decided upon. A worker of another epoch, or one that has had a surprise since
/// (`version` counts refusals and failures, never what was commanded), refuses it as stale, so that
/// of commands that build on each other none is carried out without those before it.
struct Basis {
  WorkerEpoch epoch{};
  std::uint64_t version = 0;
  friend bool operator==(const Basis&, const Basis&) = default;
};

// ---- From the manager to an agent ----

/// Where the agent of a host listens.
struct GroupHost {
  HostId id{};
  std::string name{};  ///< As its certificate has it.
  std::string address{};
  std::uint16_t port = 0;
  friend bool operator==(const GroupHost&, const GroupHost&) = default;
};

/// Make `model` resident on `device`: find or read its image, then have the worker load it.
struct LoadOn {
  DeviceId device{};
  ModelId model{};
  Basis basis{};
  bool early = false;  ///< No request waits for it yet: what others wait for goes first.
  /// Of a model that the host fetches: until the first token that waits for it is due, 1 ns where
  /// it is late; 0: none is.
  Duration due_in{};
  /// Likewise: hosts that have its files, from whose caches they may come; the best first. The core
  /// says which, the rest is put in by who knows where they are.
  std::vector<GroupHost> peers{};
  friend bool operator==(const LoadOn&, const LoadOn&) = default;
};

enum class EvictMode : std::uint8_t {
  kWhenIdle,  ///< Admit nothing more; evict when the last sequence has ended.
  kNow,       ///< Give the model's requests back, and evict.
  kFrozen,    ///< Of an external engine: with the requests that it runs.
};

/// Take `model` off `device`.
struct EvictFrom {
  DeviceId device{};
  ModelId model{};
  Basis basis{};
  EvictMode mode = EvictMode::kWhenIdle;
  /// Of an external engine: how many pages must come free at least; 0: none, it only must
  /// not run.
  std::int64_t free_pages = 0;
  Duration idle{};  ///< Since the model was last used: what its image is worth to the host cache.
  friend bool operator==(const EvictFrom&, const EvictFrom&) = default;
};

/// One rank of a model that is sharded over several devices, there.
struct GroupMember {
  DeviceId device{};
  WorkerEpoch epoch{};
  ModelId model{};  ///< The shard.
  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

/// Which group it is: no other group of its term has its number.
struct GroupId {
  std::uint64_t term = 0;  ///< Of the manager that has it formed; 0: it is the only one.
  std::uint64_t number = 0;
  friend auto operator<=>(const GroupId&, const GroupId&) = default;
};

/// All shards are in place: from now on these workers, in order of rank, run the model in lockstep.
/// The first leads. If one of them dies, none of the others is of use.
struct FormGroup {
  std::vector<GroupMember> members{};
  GroupId group{};                 ///< Its term is put in by the host that hears of it.
  std::vector<GroupHost> hosts{};  ///< Those of the members, where these are on several.
  friend bool operator==(const FormGroup&, const FormGroup&) = default;
};

/// Have `host` lend so many more of its pages to KV of `model` on `hot` (WEAVER;
/// docs/contracts/guests.md). A model has guests on one device at most.
struct Weave {
  DeviceId host{};
  Basis basis{};  ///< Of the host's worker.
  DeviceId hot{};
  WorkerEpoch hot_epoch{};
  ModelId model{};
  std::int64_t pages = 0;
  friend bool operator==(const Weave&, const Weave&) = default;
};
/// So many of the pages that `host` lends to KV of `model` are to come back. What is loaded on the
/// host from now on waits for them.
struct Unweave {
  DeviceId host{};
  ModelId model{};
  std::int64_t pages = 0;
  friend bool operator==(const Unweave&, const Unweave&) = default;
};

// ---- To a worker ----

enum class ImageSource : std::uint8_t {
  kGiven,   ///< The pages become the worker's: map them, and return as many free ones.
  kShared,  ///< The pages stay whose they are: copy them into pages of your own.
};

/// Make a model resident.
struct LoadModel {
  ModelId model{};
  Basis basis{};
  ImageSource source = ImageSource::kGiven;
  std::vector<PageId> pages{};  ///< The image, in order.
  std::uint64_t image_bytes = 0;
  std::uint64_t ready_bytes = 0;  ///< Already in place; ImageProgress tells the rest.
  policy::Footprint footprint{};
  friend bool operator==(const LoadModel&, const LoadModel&) = default;
};

/// Give up a model, or stop loading it.
struct EvictModel {
  ModelId model{};
  Basis basis{};
  EvictMode mode = EvictMode::kWhenIdle;
  /// As many free pages as the image has: the image goes back to the host. Empty: the worker keeps
  /// the image's pages as free ones. Always empty for an image that was copied.
  std::vector<PageId> pages{};
  friend bool operator==(const EvictModel&, const EvictModel&) = default;
};

/// Give up so many free pages for an external engine: the device is smaller from then on.
/// Answered by PagesReturned or LoadRefused.
struct LendPages {
  ModelId model{};  ///< The engine's.
  Basis basis{};
  std::int64_t count = 0;
  friend bool operator==(const LendPages&, const LendPages&) = default;
};

/// Free pages, lent before: the device is larger by them.
struct GivePages {
  std::vector<PageId> pages{};
  friend bool operator==(const GivePages&, const GivePages&) = default;
};

/// Pages of another device, which this one can address, are for KV of the model from now on. They
/// stay the other's.
struct LendGuests {
  ModelId model{};
  std::vector<PageId> pages{};
  friend bool operator==(const LendGuests&, const LendGuests&) = default;
};

/// Give so many of them back, within few steps. Answered by GuestsReturned, perhaps several times.
struct RecallGuests {
  ModelId model{};
  std::int64_t count = 0;
  friend bool operator==(const RecallGuests&, const RecallGuests&) = default;
};

/// The image of this model, which the worker gave back, is no more: its pages are put to other
/// uses, and nothing may go on referring to them.
struct ImageGone {
  ModelId model{};
  friend bool operator==(const ImageGone&, const ImageGone&) = default;
};

/// The weights that this model had are known to be wrong: so is KV that was computed with them, and
/// none of it is kept beyond the model's stay.
struct ForgetKv {
  ModelId model{};
  friend bool operator==(const ForgetKv&, const ForgetKv&) = default;
};

/// The first `bytes` of an image that was sent incomplete are in place now. Never goes back.
struct ImageProgress {
  ModelId model{};
  std::uint64_t bytes = 0;
  friend bool operator==(const ImageProgress&, const ImageProgress&) = default;
};

/// One answer that is still to be generated, or to be continued.
struct SubmitChoice {
  std::vector<TokenId> generated{};  ///< What the record has of it already.
  spec::SamplingParams params{};     ///< `params.choice` names it.
};

/// Who has KV of a request in its cached prefixes, as it ran there: the model, or of a cut one of
/// the stages.
struct KvSource {
  DeviceId device{};
  ModelId model{};
  GroupHost host{};  ///< Whose device it is; put in by who knows where hosts are.
  friend bool operator==(const KvSource&, const KvSource&) = default;
};

/// Run the unfinished choices of a request.
struct Submit {
  RequestId request{};
  ModelId model{};
  std::vector<TokenId> prompt{};
  std::vector<SubmitChoice> choices{};
  Duration age{};             ///< Since the request was accepted.
  Duration due{};             ///< Until its first token is, by its model's objective; < 0: since.
  std::int32_t priority = 0;  ///< Lower goes first.
  std::uint64_t client = 0;   ///< RequestRecord::client.
  std::string cache_salt{};   ///< Only requests of the same salt share cached prefixes.
  std::string adapter{};      ///< Name of the model's LoRA adapter to run it with; empty: none.
  /// Together these have KV of all layers, perhaps. It is a hint: what cannot be had is computed.
  std::vector<KvSource> kv{};
};

/// Forget a request. Nothing of it is said after the step that runs now.
struct CancelRequest {
  RequestId request{};
  friend bool operator==(const CancelRequest&, const CancelRequest&) = default;
};

/// Give up requests of the model that wait and have no pages, as they need not wait elsewhere: the
/// oldest, at most so many. Answered by a RequestReturned for each, recalled.
struct RecallRequests {
  ModelId model{};
  std::int64_t most = 0;
  bool begun = false;  ///< Those that run as well: what they have computed stays a cached prefix.
  friend bool operator==(const RecallRequests&, const RecallRequests&) = default;
};

/// The leader of the stages of `model`: the whole model, `into`, serves here now. Have KV of the
/// stages' requests come to it, and give each up once it has (RequestReturned, then KvMoved).
struct Gather {
  ModelId model{};
  ModelId into{};
  friend bool operator==(const Gather&, const Gather&) = default;
};

/// One choice needs no more tokens; the others go on.
struct FinishChoice {
  RequestId request{};
  std::uint32_t choice = 0;
  friend bool operator==(const FinishChoice&, const FinishChoice&) = default;
};

/// Of rank 0 of a group: memory has come free on its devices, so that the group's share of KV may
/// grow where it has to; or, `idle`, what the group does not need now is for others.
struct FitShare {
  ModelId model{};
  bool idle = false;
  friend bool operator==(const FitShare&, const FitShare&) = default;
};

/// Of rank 0 of a group, which is sent nothing more: once it runs nothing, the group is no more.
/// Its shards stay, staged, and what its KV had is free. Answered by SteppedBack.
struct StepBack {
  ModelId model{};
  friend bool operator==(const StepBack&, const StepBack&) = default;
};

/// Nobody gives the pages that a DeviceReport wanted for this model: do without, if it still lacks
/// them.
struct NoPages {
  ModelId model{};
  friend bool operator==(const NoPages&, const NoPages&) = default;
};

using WorkerMessage = std::variant<LoadModel,
                                   EvictModel,
                                   LendPages,
                                   GivePages,
                                   LendGuests,
                                   RecallGuests,
                                   ImageGone,
                                   ForgetKv,
                                   ImageProgress,
                                   Submit,
                                   CancelRequest,
                                   RecallRequests,
                                   Gather,
                                   FinishChoice,
                                   FitShare,
                                   StepBack,
                                   NoPages>;

/// Of a message that has waited to be taken in, as an engine hears nothing within a step: a request
/// is older by then, and its deadline nearer.
inline void grow_older(WorkerMessage& message, Duration waited) {
  if (auto* submit = std::get_if<Submit>(&message)) {
    submit->age += waited;
    submit->due -= waited;
  }
}

// ---- From a worker ----

/// The model is resident: requests for it may be submitted (its steps wait for missing weights).
struct ModelServing {
  ModelId model{};
};

/// The load was not begun, and nothing of it was kept: given pages are the host's again.
struct LoadRefused {
  ModelId model{};
  std::uint64_t version = 0;  ///< The worker's, this refusal included.
  Error reason{};             ///< kFailedPrecondition: stale; kResourceExhausted: no room.
};

/// The load was begun and failed. The model stays, of no use, until EvictModel fetches its pages.
struct LoadFailed {
  ModelId model{};
  std::uint64_t version = 0;
  Error reason{};
};

/// The eviction was not begun: stale. Pages given with it are the host's again. kNow is never
/// refused.
struct EvictRefused {
  ModelId model{};
  std::uint64_t version = 0;
  Error reason{};
};

/// The model is gone, and no request of it is left.
struct ModelEvicted {
  ModelId model{};
  /// The pages given with EvictModel are the worker's and the image's are the host's. If false,
  /// given pages are the host's again: the model was not there (an image's pages stay where they
  /// were), or nothing was given.
  bool exchanged = false;
};

/// Free pages in exchange for an image that was given, or those that LendPages asked for.
struct PagesReturned {
  ModelId model{};
  std::vector<PageId> pages{};
};

/// Pages that LendGuests brought hold nothing any more, and are their device's again. With a
/// failure the worker could not take them.
struct GuestsReturned {
  ModelId model{};
  std::vector<PageId> pages{};
  std::optional<Error> failure{};
};

/// Of a GPU: pages that it lends to KV of a model have memory now, for the hot worker to map by the
/// descriptors beside this, one for each page. With a failure: none of them has, and there is none.
struct GuestsShared {
  ModelId model{};
  std::vector<PageId> pages{};
  std::optional<Error> failure{};
};

/// The worker needs the image that it copied no longer.
struct ImageCopied {
  ModelId model{};
};

/// Of rank 0, in answer to StepBack: all ranks have left the group, and none has KV of it.
struct SteppedBack {
  ModelId model{};
};

/// Tokens of one step. The shell hands them to the records' owner; no core hears them.
struct TokensProduced {
  std::vector<TokenEvent> tokens{};
};

/// The worker has given a request up unharmed: its model is not resident, or goes, or it was
/// recalled. Submit it again.
struct RequestReturned {
  RequestId request{};
  bool recalled = false;
};

/// A request that Gather had given up goes on in the whole model; or one that was submitted with
/// sources of KV has had from them what it could.
struct KvMoved {
  ModelId model{};             ///< The whole.
  std::uint64_t tokens = 0;    ///< That it found the KV of.
  std::uint64_t computed = 0;  ///< That were computed before, and that are computed again.
  RequestId request{};  ///< Of the latter, said once all its choices have; else of one of them.
  friend bool operator==(const KvMoved&, const KvMoved&) = default;
};

/// The request cannot be run.
struct RequestFailed {
  RequestId request{};
  Error error{};
};

/// A resident model in numbers.
struct ResidentReport {
  ModelId model{};
  Residency residency = Residency::kLoading;
  std::int64_t kv_pages = 0;  ///< Held.
  std::int64_t sequences = 0;
  std::int64_t sequences_admitted = 0;
  bool complete = false;         ///< All its weights are there.
  std::int64_t lent_pages = 0;   ///< Of another device, for its KV.
  std::int64_t guest_pages = 0;  ///< Those of them that hold some.
  /// Attention of a step of all its sequences as they are, and what steps lost lately by having the
  /// host do its part. 0: nobody has measured.
  Duration attention{};
  Duration guest_loss{};
  double reading = 0;  ///< Part of its steps' time that prompts took, lately, beside decodes.
  /// Of its sequences that wait for nothing but prompts before theirs: whose first token is due
  /// before it can come.
  std::int64_t late = 0;
  /// Names of its LoRA adapters whose weights are there, in whatever order.
  std::vector<std::string> adapters{};
};

/// The worker's ledger as it is now. Sent when residency changes, and at intervals.
struct DeviceReport {
  std::uint64_t version = 0;
  ledger::PoolUsage usage{};
  std::vector<ResidentReport> models{};  ///< By model id.
  /// Pages that the oldest sequences lack and that only the eviction of models can free; 0: none.
  /// Answered by an eviction or NoPages.
  std::int64_t pages_wanted = 0;
  ModelId wanted_by{};  ///< Meaningful when pages_wanted > 0.
  /// Sequences that could be taken in but for want of pages, and what they lack of them together;
  /// others run meanwhile. 0: none.
  std::int64_t short_sequences = 0;
  std::int64_t short_pages = 0;
  ModelId short_model{};  ///< Of some of them, of each in turn; meaningful when short_pages > 0.
  /// What a step of its own sequences takes, lately, without StepDone::hosting; 0: none yet.
  Duration step{};
};

using WorkerReport = std::variant<ModelServing,
                                  LoadRefused,
                                  LoadFailed,
                                  EvictRefused,
                                  ModelEvicted,
                                  PagesReturned,
                                  GuestsReturned,
                                  GuestsShared,
                                  ImageCopied,
                                  SteppedBack,
                                  TokensProduced,
                                  RequestReturned,
                                  KvMoved,
                                  RequestFailed,
                                  DeviceReport>;

/// A report with its sender, as the cores hear it. Epochs that have ended are ignored.
struct WorkerSaid {
  DeviceId device{};
  WorkerEpoch epoch{};
  WorkerReport report{};
};

}  // namespace heddle::core
