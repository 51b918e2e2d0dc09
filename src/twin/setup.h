#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/agent_core.h"
#include "core/engines_core.h"
#include "core/manager/manager_core.h"
#include "core/worker_core.h"

namespace heddle::twin {

/// What a step costs, in seconds: once, per token through the layers, per sequence that gets a
/// token, per token that a decode attends to, per pair of tokens within a prompt.
struct StepTimes {
  double fixed = 0;
  double token = 0;
  double row = 0;
  double context = 0;
  double pair = 0;
};

/// A device, as its worker has it, and what the worker's shell does with it.
struct TwinDevice {
  core::AgentDevice device{};
  core::WorkerOptions worker{};  ///< Of every life, but for its epoch.
  Duration pace_step{};          ///< A step takes at least this ...
  Duration pace_token{};         ///< ... and this for each token ...
  Duration pace_context{};       ///< ... and this for each position whose KV it reads.
  double link = 0;               ///< Host to device [bytes/s].
  double map_page = 0;           ///< To map or unmap a page [s].
  /// A step takes so much longer than engine and pace: waking up, telling, planning the next.
  Duration step_overhead = std::chrono::microseconds(200);
};

/// Where in a pipeline a model is that is a stage of one.
struct TwinStage {
  std::int64_t index = 0;
  std::int64_t stages = 1;  ///< 1: it is none.
  bool shares = false;      ///< Other models may run on its device.
};

/// Bytes of a model's files that come together, if they come over a network.
struct FileRecord {
  std::uint64_t number = 0;  ///< In all files of the model.
  std::uint64_t bytes = 0;
};

struct TwinModel {
  core::AgentModel model{};
  std::int64_t layers = 1;
  std::uint64_t body_bytes = 0;  ///< Of the image, all before the head: for steps without a token.
  StepTimes step{};
  Duration ttl{};  ///< Given up after being idle for so long; 0: never.
  TwinStage stage{};
  /// Of one that is fetched: the model whose files it is made of, and what it is made of, in the
  /// order of the image. Never empty then.
  ModelId source{};
  std::vector<FileRecord> records{};
  std::int64_t piece_tokens = 64;  ///< Of KV that goes from its stages to it, in one piece.
};

/// A way of suspending an engine: what it takes, and what the engine keeps meanwhile.
struct TwinSuspension {
  Duration out{};
  Duration in{};                ///< Back from there, its probe included.
  std::int64_t held_pages = 0;  ///< Of all its devices together.
  std::int64_t host_pages = 0;  ///< That what was saved takes of host memory.
};

/// An external engine. It never fails, and what it answers takes no longer beside other answers.
struct TwinEngine {
  core::HostedEngine hosted{};  ///< Its KV is not elastic.
  Duration ttl{};               ///< As TwinModel has it.
  Duration start{};             ///< Until it was probed.
  Duration stop{};
  std::int64_t held_pages = 0;  ///< While it runs, of all its devices together.
  /// For each of its levels but kStop.
  std::map<spec::SuspendLevel, TwinSuspension> suspensions{};
  // What an answer takes, from when the request is forwarded on:
  Duration first_token{};
  Duration prompt_token{};  ///< More for each token of the prompt.
  Duration token{};         ///< From one token to the next.
};

/// How fetches share a host's link; as agent::FetchLink has it.
struct FetchTimes {
  Duration begin = std::chrono::milliseconds(3);     ///< Until it asks for its first bytes.
  Duration credit = std::chrono::milliseconds(250);  ///< What nobody took is made up for.
  Duration ahead = std::chrono::milliseconds(2);     ///< Bytes pass before they are paid for.
  Duration patience = std::chrono::seconds(2);       ///< Whoever has waited so long goes next.
  Duration look = std::chrono::milliseconds(100);    ///< Whether one may ask for more.
};

/// What the ways between the parts take.
struct Paths {
  Duration arrive = std::chrono::microseconds(400);  ///< A request, from its client to the manager.
  Duration hop = std::chrono::microseconds(60);      ///< A message to a worker, or from it.
  Duration answer = std::chrono::microseconds(200);  ///< Tokens, from the manager to the client.
  Duration start = std::chrono::milliseconds(60);    ///< Of a worker.
  double read = 1.5e9;                               ///< Files to the host's memory [bytes/s].
  /// A file is read in parts of this size, after each of which the reader tells how far it is.
  std::uint64_t read_part = std::uint64_t{4} << 20U;
  FetchTimes fetch{};
};

/// A host, as its agent has it.
struct HostSetup {
  core::AgentOptions agent{};  ///< In a cluster, of every life, but for its incarnation.
  std::vector<TwinDevice> devices{};
  std::uint64_t nic = 0;              ///< What it fetches at, at most [bytes/s]; 0: no limit.
  std::vector<TwinEngine> engines{};  ///< A Cluster has none.
  std::vector<core::EngineDevice> engine_devices{};
  std::int64_t snapshot_pages = 0;  ///< That what is saved of engines may have of host memory.
};

/// How long the parts of a cluster bear with each other; as node and remote have it.
struct ClusterTimes {
  Duration hop = std::chrono::microseconds(200);  ///< A message between hosts.
  /// Whoever hears nothing for so long ends the link.
  Duration silence = std::chrono::milliseconds(1250);
  Duration again = std::chrono::milliseconds(100);  ///< Between tries to link, at most.
  Duration patience = std::chrono::seconds(5);      ///< Until the hosts of a pipeline have linked.
  /// Of a new manager and after a host has come: how long nothing is decided at most.
  Duration settling = std::chrono::milliseconds(500);
  /// The same before any host has told a new manager of itself.
  Duration first_host = std::chrono::seconds(5);
  Duration grace = std::chrono::seconds(2);        ///< A gateway may be away from its manager.
  Duration rest = std::chrono::milliseconds(250);  ///< Before a host that is not linked is lost.
  Duration open = std::chrono::milliseconds(20);   ///< A host's models, when it is configured.
};

/// Hosts in virtual time, and who sends them requests.
struct TwinSetup {
  core::Configure manager{};  ///< With the devices of all hosts.
  /// One, whose number is 0; or those of a cluster, numbered from 1.
  std::vector<HostSetup> hosts = std::vector<HostSetup>(1);
  std::size_t gateways = 1;  ///< Of a cluster.
  ClusterTimes times{};      ///< Likewise.
  std::vector<TwinModel> models{};
  std::vector<ModelId> preload{};  ///< Loaded from the start on.
  Paths paths{};
  /// For tests: after each event the cores' invariants are checked and what pages hold is
  /// (Contents), and all that the cores hear and want is kept.
  bool checked = false;
};

/// A request: its prompt has `input_tokens`, each answer exactly `output_tokens` where the memory
/// of its device holds as many.
struct Ask {
  Instant at{};
  ModelId model{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::size_t choices = 1;
  std::int32_t priority = 0;
  bool open_ended = false;             ///< Where memory ends, so may the answer.
  bool grammar = false;                ///< Its answer has one.
  std::optional<Duration> patience{};  ///< It fails when it still waits after this.
  std::string cache_salt{};
};

/// What became of it, as its client sees it.
struct Answer {
  Instant first{};  ///< Token.
  Instant last{};
  std::int64_t tokens = 0;
  std::string error{};  ///< Empty where all went well.
};

}  // namespace heddle::twin
