#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "core/life.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/quota_use.h"
#include "core/serving.h"
#include "host/offer.h"
#include "ledger/ledger.h"

/// What managers, hosts and gateways say to each other over net::HostLink. Events and commands of
/// the cores go as they are; what their shells say beside them is here. remote/*_fields.h describe
/// each message, docs/contracts/wire.md says who sends what when.
namespace heddle::remote {

// ---- From a manager to a host ----

/// The first: who orders from now on. A host carries out nothing of a manager before it, and ends
/// the link of one whose term is lower than another that it has heard.
struct Lead {
  std::uint64_t term = 0;
  bool hears_of_terms = false;  ///< The manager knows LaterTerm.
};

/// The configuration of the cluster, in YAML.
struct Configuration {
  std::uint64_t revision = 0;  ///< Of the text; greater means later.
  std::string text{};
};

/// As host::HostPort::set_models.
struct SetModels {
  std::vector<host::Assignment> models{};
};

/// The host is to go, or no longer. It says core::HostLeaving when it knows.
struct Leave {
  bool leaving = true;
};

/// A window that has ended, by its number (history::WindowLoad).
struct PastWindow {
  std::int64_t window = 0;
  float mean = 0;
  float peak = 0;
};
/// A model's loads in past windows, which ascend.
struct PastLoad {
  std::string model{};  ///< Its name.
  std::vector<PastWindow> windows{};
};

/// Loads of models, which ascend by name, in past windows. From a manager: what the host is to
/// remember, in place of what it has of these windows. From a host: the answer to a TellLoads.
struct Loads {
  Duration length{};      ///< Of the windows.
  std::int64_t keep = 0;  ///< From a manager: so many windows, the latest.
  std::vector<PastLoad> models{};
  bool same = false;  ///< From a host: it has just what the manager has.
  bool last = false;  ///< From a host: it has nothing after these.
};
/// Most models of one Loads, and most windows of all its models.
inline constexpr std::size_t kLoadsModelsMost = 1024;
inline constexpr std::size_t kLoadsWindowsMost = 2048;

/// What does the host remember of windows of this length: the windows of `model` from `window` on,
/// and then of models after it. Goes to hosts that remember loads, and is answered by one Loads.
struct TellLoads {
  Duration length{};
  std::uint64_t digest = 0;  ///< Of what the manager has (history::LoadBook::digest).
  std::string model{};
  std::int64_t window = 0;
};

/// As host::HostPort::set_holders. Goes to hosts that share their caches.
struct Holders {
  std::vector<host::Holder> models{};
};

/// Of what a TellWorker may hold: RecallRequests, Gather, FitShare, StepBack and NoPages.
using ToHost = std::variant<Lead,
                            Configuration,
                            SetModels,
                            Leave,
                            Loads,
                            TellLoads,
                            Holders,
                            core::LoadOn,
                            core::EvictFrom,
                            core::FormGroup,
                            core::Weave,
                            core::Unweave,
                            core::LimitKv,
                            core::TellWorker>;

// ---- From a host to its manager ----

/// The answer to Lead: what the host is. What it knows of its devices follows.
struct HostHere {
  HostId host{};
  host::HostFacts facts{};
  bool remembers_loads = false;  ///< It knows Loads and TellLoads. A manager says none to others.
  /// It knows Holders, and gives other hosts what its caches have.
  bool shares_cache = false;
};

/// All that the host knew when it was asked has been said; what follows is news.
struct HostKnown {};

/// What the host can do about the models of a configuration.
struct Offers {
  std::uint64_t revision = 0;  ///< Of the Configuration.
  std::vector<host::Offer> offers{};
};

/// A worker, or an engine, has been told to load a model.
struct Told {
  DeviceId device{};
  ModelId model{};
};

/// The answer to a Lead in a term that was another's, or before one: the least that the host would
/// follow. The link ends with it.
struct LaterTerm {
  std::uint64_t term = 0;
};

/// What there is to see of a host.
struct HostStatus {
  /// Each as HostPort::describe makes it of one that has an id, a life, and nothing else.
  std::vector<core::DeviceStatus> devices{};
  ledger::PoolUsage usage{};
  std::vector<core::EngineStatus> engines{};  ///< Instants are ages.
  std::vector<std::string> troubles{};
  std::vector<core::FetchStatus> fetches{};
};

/// Of what a worker says: what ManagerCore is to hear, and nothing of requests.
using FromHost = std::variant<HostHere,
                              HostKnown,
                              Offers,
                              Told,
                              HostStatus,
                              Loads,
                              LaterTerm,
                              core::WorkerUp,
                              core::WorkerDown,
                              core::WorkerFound,
                              core::WorkerSaid,
                              core::ImageFailed,
                              core::GroupFormed,
                              core::ImageState,
                              core::GuestState,
                              core::EngineSaid,
                              core::EngineKv,
                              core::HostLeaving>;

// ---- From a gateway to a host ----

/// Send the files from which the model's text is made. Answered by TextFiles, or by TextFailed.
struct FetchText {
  std::string model{};   ///< Its name.
  std::string digest{};  ///< As host::Offer has it.
};

/// Of what a TellWorker may hold: Submit, FinishChoice and CancelRequest.
using GatewayToHost = std::variant<core::TellWorker, FetchText>;

// ---- From a host to a gateway ----

using core::Life;
/// The first: which host this is, and which workers live.
struct Lives {
  HostId host{};
  std::vector<Life> lives{};
};

/// That life of a worker has ended, and all that it said of requests was said before this; or
/// something was submitted to a life that is not.
struct LifeEnded {
  DeviceId device{};
  WorkerEpoch epoch{};
};

/// Most bytes of a TextFile.
inline constexpr std::size_t kTextPieceMost = std::size_t{1} << 20U;

/// The next piece of a file.
struct TextFile {
  std::string model{};
  std::string digest{};
  std::string name{};  ///< Of the file, as is_file_name() has it.
  std::string bytes{};
  bool ends = false;  ///< The file is complete.
  bool last = false;  ///< So are all.
};

struct TextFailed {
  std::string model{};
  std::string digest{};
  Error error{};
};

/// Of what a worker says: TokensProduced, RequestReturned and RequestFailed, of requests of this
/// link.
using HostToGateway = std::variant<Lives, core::WorkerSaid, LifeEnded, TextFile, TextFailed>;

// ---- From a gateway to the manager ----

/// An operator wants a host to go, or to stay after all. Answered by AdminDone.
struct DrainHost {
  HostId host{};
  bool leaving = true;
  core::TicketId ticket{};
};

/// An operator wants the cluster to take over a configuration, in YAML. Answered by AdminDone.
struct Apply {
  core::TicketId ticket{};
  std::string text{};
  bool dry_run = false;
};

/// What keys have used of their quotas at one gateway: from there to the manager, which passes it
/// on to the others. The first of a gateway may be empty, and says that it takes them.
struct QuotasUsed {
  std::vector<core::QuotaUse> uses{};  ///< core::kQuotaUsesMost at most.
};

/// FrontState is the first. Of what a worker said: RequestReturned and RequestFailed.
using GatewayToManager = std::variant<core::FrontState,
                                      core::RequestArrived,
                                      core::RequestFinished,
                                      core::RequestCancelled,
                                      core::PlaceLost,
                                      core::RequestUnanswered,
                                      core::WorkerSaid,
                                      core::AdminLoad,
                                      core::AdminUnload,
                                      DrainHost,
                                      Apply,
                                      QuotasUsed>;

// ---- From the manager to a gateway ----

/// A model as a gateway knows it.
struct ServedFacts {
  std::string name{};
  std::string digest{};  ///< As host::Offer has it; empty: no text is made of it here.
  core::ServedModel served{};
  std::int64_t tokens_max = 0;  ///< As ManagerCore has it.
};
/// The models that are configured from now on.
struct Served {
  std::map<ModelId, ServedFacts> models{};
  bool shares_quotas = false;  ///< The manager knows QuotasUsed.
};

/// As serving::FrontPort::tell_loading.
struct Loading {
  ModelId model{};
  std::uint64_t bytes = 0;
};

/// What there is to see, as core::ServingStatus has it. Instants are ages (make_ages).
struct Status {
  std::vector<core::ModelStatus> models{};
  std::vector<core::DeviceStatus> devices{};
  ledger::PoolUsage usage{};
  std::vector<core::EngineStatus> engines{};
  std::vector<core::NotedDecision> decisions{};
  std::vector<std::string> troubles{};
  std::vector<core::HostEntry> hosts{};
};

using ManagerToGateway = std::variant<core::Dispatch,
                                      core::Hold,
                                      core::FailRequest,
                                      core::AdminDone,
                                      Configuration,
                                      Served,
                                      Loading,
                                      Status,
                                      QuotasUsed>;

// ---- Bytes ----

[[nodiscard]] std::string encode(const ToHost& message);
[[nodiscard]] std::string encode(const FromHost& message);
[[nodiscard]] std::string encode(const GatewayToHost& message);
[[nodiscard]] std::string encode(const HostToGateway& message);
[[nodiscard]] std::string encode(const GatewayToManager& message);
[[nodiscard]] std::string encode(const ManagerToGateway& message);

/// kCorrupt, with what was wrong in which field, for bytes that are no such message or say what
/// cannot be: a message of another direction, a negative count, a worker's message or report that
/// does not go this way. Trusts nothing; which devices and requests there are the reader checks.
Result<ToHost> decode_to_host(std::string_view bytes);
Result<FromHost> decode_from_host(std::string_view bytes);
Result<GatewayToHost> decode_gateway_to_host(std::string_view bytes);
Result<HostToGateway> decode_host_to_gateway(std::string_view bytes);
Result<GatewayToManager> decode_gateway_to_manager(std::string_view bytes);
Result<ManagerToGateway> decode_manager_to_gateway(std::string_view bytes);

/// Whether a file may have this name in a folder of somebody else: 1 to 255 bytes, without a slash
/// and a zero, and no dot first.
[[nodiscard]] bool is_file_name(std::string_view name);

/// No clock crosses a host: in the place of each instant goes its age, and the reader makes of that
/// an instant of its own clock. Instant{}, which means never, stays.
void make_ages(HostStatus& status, Instant now);
void make_ages(Status& status, Instant now);
/// The inverse, where the message has come.
void make_instants(HostStatus& status, Instant now);
void make_instants(Status& status, Instant now);

}  // namespace heddle::remote
