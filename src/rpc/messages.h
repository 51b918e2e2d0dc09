#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "base/result.h"
#include "base/time.h"
#include "core/messages.h"
#include "core/serving.h"
#include "ledger/drop_reason.h"
#include "policy/admission.h"
#include "policy/batching.h"
#include "policy/device_queue.h"
#include "policy/watchdog.h"
#include "spec/adapter_source.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"

/// What goes over the link between `heddle serve` and a worker. rpc/link_fields.h and
/// core/message_fields.h describe each message; docs/contracts/wire.md says how one looks on the
/// wire.
namespace heddle::rpc {

/// A step takes at least this long, so that a scale model is as slow as what it stands for.
struct Pace {
  Duration step{};   ///< Any step.
  Duration token{};  ///< More for each token through a model.
  /// More for each position whose KV it reads; those of guests are their host's.
  Duration context{};
  friend bool operator==(const Pace&, const Pace&) = default;
};

/// What a worker is, for one life. The arena's descriptor goes beside it.
struct WorkerHello {
  DeviceId device{};
  WorkerEpoch epoch{};
  std::string name{};
  std::vector<int> cores{};  ///< CPUs to run on; empty: one thread, anywhere.
  std::optional<int> gpu{};  ///< The CUDA driver's number of the device; none: part of the host.
  std::uint64_t page_bytes = 0;
  std::vector<PageId> pages{};       ///< The pool of this life.
  std::uint64_t load_bandwidth = 0;  ///< Of copies [bytes/s]; 0: as fast as it goes.
  Pace pace{};
  policy::StepOptions step{};
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  std::string event_log{};        ///< File for the events of its core; empty: none.
  std::int64_t prefix_cache = 0;  ///< As core::WorkerOptions has it.
  std::int64_t device_pages = 0;  ///< Likewise.
  policy::QueueRule queue = policy::QueueRule::kMooreHodgson;  ///< Likewise.
  std::int64_t fixed_parts = 0;                                ///< Likewise.
  std::int64_t kv_pages = 0;  ///< Of `pages`, how many keep KV of models that have left.
};

/// What a model is; sent before its first LoadModel. An id never names another model.
struct ModelDescription {
  ModelId model{};
  std::string name{};
  spec::ModelSpec spec{};
  spec::DType dtype = spec::DType::kBf16;  ///< Of the image's matrices.
  std::string directory{};                 ///< Of its files; the worker reads its tokenizer there.
  std::vector<spec::AdapterSource> adapters{};  ///< Those that its requests may name.
};

/// Run this shard in lockstep with the other ranks of its model from now on. Beside it go the
/// group's memory (collective::SharedArea), and then sockets: to rank 0 one for each other rank, in
/// order; to those the other end of theirs, over which rank 0 sends frames that each are one
/// core::WorkerCommand (core/codec.h).
struct JoinGroup {
  ModelId model{};  ///< The shard.
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  friend bool operator==(const JoinGroup&, const JoinGroup&) = default;
};

/// This model is a stage of a pipeline, and joined to the others from now on
/// (docs/contracts/pipe.md). Beside it go two sockets, over which frames come from the stage before
/// and go to the stage behind; behind the last is the first. Each is a ToStage and what goes with
/// it (worker/pipe_wire.h).
struct JoinPipe {
  ModelId model{};
  std::int64_t stage = 0;
  std::int64_t stages = 1;
  bool shared = false;  ///< Other models run on its device.
  friend bool operator==(const JoinPipe&, const JoinPipe&) = default;
};

/// There is another GPU on this host, whose worker is alive. Beside it goes a socket of packets to
/// that worker: PeerLoad's end for loads over the other's link, or PeerAssist's that serves them.
struct MeetPeer {
  int gpu = 0;           ///< The other's, as the CUDA driver counts.
  bool assists = false;  ///< The worker that is told serves; else it may use.
  friend bool operator==(const MeetPeer&, const MeetPeer&) = default;
};

/// Before JoinGroup of a shard on a GPU, for each other rank: beside it goes a socket of packets to
/// that rank's worker, over which the two tell each other of memory that both GPUs reach
/// (worker::PeerRanks).
struct MeetRank {
  ModelId model{};        ///< The shard of the worker that is told.
  std::int64_t rank = 0;  ///< The other's.
  friend bool operator==(const MeetRank&, const MeetRank&) = default;
};

/// Lend these pages to KV of a model on another device, and run attention over them. With a
/// descriptor, of a weave::JobArea: through that, in place of what was before. Without one, they
/// are what is left; none: it is over.
struct HostGuests {
  ModelId model{};
  std::vector<PageId> pages{};
  friend bool operator==(const HostGuests&, const HostGuests&) = default;
};
/// To a GPU's worker, beside HostGuests: these pages, which it lends to KV of the model, are to
/// have memory that other GPUs can map. With descriptors, one for each page: they have it already,
/// and this life is to map it. Without: answered by core::GuestsShared.
struct ShareGuests {
  ModelId model{};
  std::vector<PageId> pages{};  ///< At most kFrameDescriptorsMax.
  friend bool operator==(const ShareGuests&, const ShareGuests&) = default;
};
/// To the worker of the GPU that has the model, before the core::LendGuests that names them: the
/// memory of these pages of another GPU, by the descriptors beside this, one for each page.
struct GuestMemory {
  ModelId model{};
  std::vector<PageId> pages{};    ///< At most as many.
  std::int64_t device_pages = 0;  ///< Of the other GPU, whose pages are numbered below that.
  friend bool operator==(const GuestMemory&, const GuestMemory&) = default;
};
/// To the worker that has the model: with a descriptor, of the same area, another device runs
/// attention over what it lends. Without one nobody does.
struct MeetHost {
  ModelId model{};
  friend bool operator==(const MeetHost&, const MeetHost&) = default;
};

/// A worker asks another for KV (engine::KvWanted), whose agent answers in any case. From the
/// worker that wants it to its agent, and from an agent to the worker that may have it. Each
/// numbers its own.
struct KvAsk {
  std::uint64_t ask = 0;
  core::KvSource from{};
  std::string cache_salt{};
  std::vector<TokenId> tokens{};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const KvAsk&, const KvAsk&) = default;
};
/// The answer: engine::KvPart in the words of this layer. Without positions: nobody has it.
struct KvGiven {
  std::uint64_t ask = 0;
  std::int64_t prefix = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_layer = 0;
  std::vector<std::int64_t> from{};
  std::string bytes{};
  friend bool operator==(const KvGiven&, const KvGiven&) = default;
};

/// End the process; nothing of it needs saving.
struct Shutdown {};

using ToWorker = std::variant<WorkerHello,
                              ModelDescription,
                              JoinGroup,
                              JoinPipe,
                              MeetPeer,
                              MeetRank,
                              HostGuests,
                              ShareGuests,
                              GuestMemory,
                              MeetHost,
                              KvAsk,
                              KvGiven,
                              core::WorkerMessage,
                              Shutdown>;

// ---- From stage to stage of a pipeline ----

/// Consecutive tokens of one sequence; engine::PipeSlice in the words of this layer.
struct PipeSlice {
  policy::SequenceId sequence{};
  std::int64_t position = 0;
  std::vector<TokenId> tokens{};
  std::vector<TokenId> prefix{};
  std::string cache_salt{};
  std::int64_t wanted = 0;
  friend bool operator==(const PipeSlice&, const PipeSlice&) = default;
};

/// A batch on its way; engine::PipeBatch in the words of this layer. Behind it go its rows:
/// float32, little endian, of all tokens, or behind the last stage of the wanted ones.
struct PipeStep {
  std::uint64_t number = 0;
  std::vector<policy::SequenceId> dropped{};
  std::vector<PipeSlice> slices{};
  std::vector<policy::SequenceId> refused{};
  std::uint64_t floats = 0;    ///< That go behind it.
  std::uint64_t checksum = 0;  ///< Of those: half of their SipHash-2-4, without a secret.
  friend bool operator==(const PipeStep&, const PipeStep&) = default;
};

/// A follower has its pages; for the leader, and passed on by the stages between.
struct PipeFollower {
  std::int64_t stage = 0;
  std::vector<policy::KvGroup> kv{};
  std::int64_t pages = 0;
  friend bool operator==(const PipeFollower&, const PipeFollower&) = default;
};

/// KV of positions [begin, end) of a sequence, which goes round to the leader; engine::KvPiece in
/// the words of this layer. Behind it go the bytes of the layers behind the first stage's, as far
/// as it has come.
struct PipeKv {
  std::uint64_t number = 0;
  policy::SequenceId sequence{};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::int64_t> from{};
  bool refused = false;
  std::uint64_t bytes = 0;     ///< That go behind it.
  std::uint64_t checksum = 0;  ///< Of those, as PipeStep has it.
  friend bool operator==(const PipeKv&, const PipeKv&) = default;
};

using ToStage = std::variant<PipeStep, PipeFollower, PipeKv>;

/// The answer to WorkerHello. After a failure the worker ends.
struct HelloAck {
  std::optional<Error> failure{};
};

/// What a worker's shell counts over its life; for metrics, no core hears it.
struct WorkerStats {
  std::uint64_t steps = 0;
  std::uint64_t late_steps = 0;                 ///< Took 5 % longer than the pace says, or more.
  std::uint64_t slow_steps = 0;                 ///< Of them, 20 % longer or more.
  std::uint64_t overrun_steps = 0;              ///< Of those, not for being woken late.
  Duration busy{};                              ///< In steps.
  Duration mapping{};                           ///< Mapping and unmapping windows.
  std::uint64_t copied_bytes = 0;               ///< Of images.
  std::uint64_t peer_load_bytes = 0;            ///< Of them, over other GPUs' links.
  std::uint64_t peer_assist_bytes = 0;          ///< Over this GPU's link, for others.
  std::uint64_t kept_bytes = 0;                 ///< Mapped for models that are not there.
  std::vector<core::PrefixCounts> prefixes{};   ///< By model id.
  ledger::DropCounts dropped_pages{};           ///< Of cached prefixes.
  Duration guest_busy{};                        ///< Attention over guests of other devices.
  Duration guest_wait{};                        ///< For that over its own guests elsewhere.
  std::uint64_t guest_layers{};                 ///< Layers of those that their host answered.
  std::uint64_t guest_layers_alone{};           ///< And that it did not: they were computed here.
  core::KvStoreCounts kv_store{};               ///< KV of models that have left.
  std::vector<core::AdapterStatus> adapters{};  ///< By model and name.
  std::vector<core::ExpertStatus> experts{};    ///< By model.
  friend bool operator==(const WorkerStats&, const WorkerStats&) = default;
};

/// How often a worker says that it lives.
inline constexpr Duration kBeatPeriod = std::chrono::milliseconds(250);
/// Most threads that one tells of.
inline constexpr int kBeatThreadsMost = 16;

/// That the worker's loop runs, and what its other threads are at. It is left out while the other
/// side takes nothing.
struct Beat {
  std::vector<policy::ThreadPulse> threads{};
  friend bool operator==(const Beat&, const Beat&) = default;
};

/// What a worker says, with the life that says it.
struct ToServe {
  WorkerEpoch epoch{};
  std::variant<HelloAck, core::WorkerReport, WorkerStats, Beat, KvAsk, KvGiven> body{};
};

[[nodiscard]] std::string encode(const ToWorker& message);
[[nodiscard]] std::string encode(const ToServe& message);
[[nodiscard]] std::string encode(const ToStage& message);

/// kCorrupt, with what was wrong in which field, for bytes that are no such message or say what
/// cannot be (an unknown enumerator, a negative count). Trusts nothing.
Result<ToWorker> decode_to_worker(std::string_view bytes);
Result<ToServe> decode_to_serve(std::string_view bytes);
Result<ToStage> decode_to_stage(std::string_view bytes);

}  // namespace heddle::rpc
