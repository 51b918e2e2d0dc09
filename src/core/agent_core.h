#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/manager/manager_core.h"
#include "core/messages.h"
#include "ledger/ledger.h"
#include "policy/admission.h"

namespace heddle::core {

/// A model as its host knows it.
struct AgentModel {
  ModelId id{};
  std::uint64_t image_bytes = 0;
  policy::Footprint footprint{};      ///< In pages of this host's arena.
  policy::Footprint gpu_footprint{};  ///< The same on devices that have memory of their own.
  /// Pages of the image, where a device has a part of it alone and reads the rest at the host; 0: a
  /// device has all of it.
  std::int64_t host_pages = 0;
  /// Its weights come over a network: they are read beside those of others, which wait for no
  /// server, and no longer than somebody wants them.
  bool fetched = false;
};

/// A device of this host.
struct AgentDevice {
  DeviceId id{};
  std::int64_t pages = 0;
  /// Beside those, pages of the arena in which its worker keeps KV of models that have left.
  std::int64_t kv_pages = 0;
  bool copy = false;  ///< It copies images instead of taking their pages over.
  /// Its pages are no part of the host's memory, such as a GPU's. Then it copies.
  bool own_memory = false;
};

struct AgentOptions {
  std::int64_t host_pages = 0;  ///< Budget of the host cache; the arena has the devices' more.
  std::vector<AgentDevice> devices{};
  Duration restart_first = std::chrono::milliseconds(100);  ///< Pause before a worker's 2nd life.
  Duration restart_most = std::chrono::seconds(30);         ///< Doubling stops here.
  /// A worker that was ready for so long had no bad start: the pause after it is the first again.
  Duration restart_calm = std::chrono::seconds(2);
  /// Of this life of the host: lives of its workers are later than those of an earlier one.
  std::uint64_t incarnation = 0;
};

// ---- What an agent hears ----

/// Start: spawns the workers. Once, before anything else but AgentModels.
struct StartAgent {};
/// The models there are now. One that is missing is forgotten once no device has it.
struct AgentModels {
  std::vector<AgentModel> models{};
};
/// The worker has connected and is ready for commands.
struct WorkerConnected {
  DeviceId device{};
  WorkerEpoch epoch{};
};
/// The worker's process has been reaped: it touches no page any more, and all it said was heard.
/// Also says that it could not be started.
struct WorkerExited {
  DeviceId device{};
  WorkerEpoch epoch{};
  bool killed = false;  ///< By SIGKILL, which nothing that it ran sends.
};
/// The worker hangs: it is to be ended.
struct WorkerHung {
  DeviceId device{};
  WorkerEpoch epoch{};
  bool stopped = false;  ///< By a signal: for nothing that it ran.
  Error reason{};
};
/// The reader has filled the first `bytes` of the image.
struct ReadProgress {
  ModelId model{};
  std::uint64_t bytes = 0;
};
/// The reader has ended and writes no more. Complete unless `error` is set (kCancelled: as asked).
struct ReadEnded {
  ModelId model{};
  std::optional<Error> error{};
};
/// What the image was made of is known to be wrong by now: it is as if its read had failed. Of no
/// effect where it is not complete.
struct ImageSpoilt {
  ModelId model{};
  Error error{};
};
/// Pages that were lent are backed by memory again.
struct PagesBacked {
  DeviceId device{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// What this host's members of a pipeline were to be connected with on other hosts, they are.
struct GroupLinked {
  GroupId group{};
};
/// They are so no longer, or could not be: some host has ended its part, or is not reached.
struct GroupCut {
  GroupId group{};
  Error reason{};
};
/// Stop: no worker is started again; those there are end with their links.
struct StopAgent {};
/// Whoever ordered loads and loans for guests is gone: those that no worker was told of are
/// dropped.
struct ForgetOrders {};

using AgentEvent = std::variant<StartAgent,
                                AgentModels,
                                LoadOn,
                                EvictFrom,
                                FormGroup,
                                GroupLinked,
                                GroupCut,
                                Weave,
                                Unweave,
                                WorkerConnected,
                                WorkerExited,
                                WorkerHung,
                                WorkerSaid,
                                ReadProgress,
                                ReadEnded,
                                ImageSpoilt,
                                Borrow,
                                Repay,
                                PagesBacked,
                                Tick,
                                ForgetOrders,
                                StopAgent>;

// ---- What an agent does ----

/// Start a worker process; `pages` are the pool of this life. WorkerConnected or WorkerExited.
struct SpawnWorker {
  DeviceId device{};
  WorkerEpoch epoch{};
  std::vector<PageId> pages{};
};
/// The worker broke the rules (kCorrupt), hangs, or its group has lost another: kill it.
/// WorkerExited follows.
struct KillWorker {
  DeviceId device{};
  WorkerEpoch epoch{};
  Error reason{};
};
struct SendWorker {
  DeviceId device{};
  WorkerEpoch epoch{};
  WorkerMessage message{};
};
/// Connect these workers, in order of rank, and tell each which it is. Those of this host are
/// alive, and nothing is sent to one of them before it was told. Where others are on other hosts,
/// GroupLinked or GroupCut follows, and GroupCut may follow GroupLinked.
struct ConnectGroup {
  std::vector<GroupMember> members{};
  GroupId group{};
  std::vector<GroupHost> hosts{};
};
/// End what connects this host's members of the group with other hosts. Nothing more is heard of
/// it.
struct LeaveGroup {
  GroupId group{};
};
/// Make the memory through which the hot worker has the host's run attention over these pages
/// (weave::JobArea), and tell both, in place of what they had for the model. Both are alive.
struct ConnectGuests {
  DeviceId host{};
  WorkerEpoch host_epoch{};
  DeviceId hot{};
  WorkerEpoch hot_epoch{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Of a GPU that lends these pages: have its worker give them memory that the hot one can map, each
/// the same as in a former life if it had some then. GuestsShared, perhaps several times.
struct ShareMemory {
  DeviceId host{};
  WorkerEpoch host_epoch{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Have the hot worker map the memory of these pages, which the host's has shared.
struct PassMemory {
  DeviceId host{};
  DeviceId hot{};
  WorkerEpoch hot_epoch{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Tell a host's worker on which pages the model has its guests, over the area there is. None: it
/// serves it no longer. The memory that the others shared is nobody's any more.
struct LeaseGuests {
  DeviceId host{};
  WorkerEpoch host_epoch{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Tell a hot worker that nobody runs attention over the model's guests any more.
struct DisconnectGuests {
  DeviceId hot{};
  WorkerEpoch hot_epoch{};
  ModelId model{};
};
/// Fill `pages`, in order, with the image. One reader at a time, beside those of fetched models.
struct StartRead {
  ModelId model{};
  std::vector<PageId> pages{};
  bool early = false;              ///< As LoadOn has it,
  Duration due_in{};               ///< likewise,
  std::vector<GroupHost> peers{};  ///< likewise.
};
/// Make the reader of this model stop; ReadEnded follows, as it does in any case.
struct CancelRead {
  ModelId model{};
};

/// Give what backs these pages to the kernel, and tell EnginesCore LoanGranted.
struct GrantLoan {
  DeviceId device{};
  ModelId model{};
  std::vector<PageId> pages{};
};
/// Tell EnginesCore LoanRefused.
struct RefuseLoan {
  ModelId model{};
  Error reason{};
};
/// Tell EnginesCore LoanRepaid.
struct EndLoan {
  ModelId model{};
};
/// Back these pages with memory again; PagesBacked.
struct BackPages {
  DeviceId device{};
  ModelId model{};
  std::vector<PageId> pages{};
};

using AgentCommand = std::variant<SpawnWorker,
                                  KillWorker,
                                  SendWorker,
                                  ConnectGroup,
                                  LeaveGroup,
                                  ConnectGuests,
                                  ShareMemory,
                                  PassMemory,
                                  LeaseGuests,
                                  DisconnectGuests,
                                  StartRead,
                                  CancelRead,
                                  GrantLoan,
                                  RefuseLoan,
                                  BackPages,
                                  EndLoan,
                                  TellManager,
                                  WakeAt>;

using ModelsByDevice = std::map<DeviceId, std::vector<ModelId>>;

/// What one host's agent decides: which page of the arena is where, which images the host cache
/// keeps, what is read from disk, what is exchanged with the workers, when a worker is started
/// again. Decides, never acts; equal events at equal times give equal commands. Used by one thread.
///
/// Pages of the arena are numbered [0, host_pages + sum of the pages of devices without memory of
/// their own, kv_pages included). Each has one place at any moment: free at the host, in an image
/// at the host, in an image at a worker, in a worker's pool, or lent: to an external engine, or to
/// KV of a model on another device (guests). The pages of a device with memory of its own are
/// numbered from 0 and never leave it but for such an engine, or for guests of another such device.
class AgentCore {
 public:
  explicit AgentCore(const AgentOptions& options);
  ~AgentCore();
  AgentCore(AgentCore&&) noexcept;
  AgentCore& operator=(AgentCore&&) noexcept;

  /// Takes in one event and appends the commands it gives rise to. Times never go backwards.
  void step(Instant now, const AgentEvent& event, std::vector<AgentCommand>& commands);

  /// Pages of the host's budget by lease kind.
  [[nodiscard]] ledger::PoolUsage host_usage() const;
  /// The models that workers have or were told to load and have not refused, by device.
  [[nodiscard]] ModelsByDevice models() const;

  /// CHECK-fails if the state contradicts itself, above all: that a page has one place.
  void check_invariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::core
