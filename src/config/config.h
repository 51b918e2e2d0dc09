#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/http_address.h"
#include "base/log.h"
#include "base/result.h"
#include "base/time.h"
#include "config/document.h"
#include "config/engine_config.h"
#include "spec/dtype.h"

namespace heddle::config {

using namespace std::chrono_literals;

/// What an address speaks.
enum class Scheme : std::uint8_t {
  kUsual,  ///< TLS where there is a certificate, plain HTTP elsewhere.
  kHttp,
  kHttps,
};

/// An address to accept connections on.
struct ListenAddress {
  std::string host{};      ///< Name or numeric address.
  std::uint16_t port = 0;  ///< 0 lets the system choose one.
  Scheme scheme = Scheme::kUsual;
  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

/// What the server shows to clients that speak TLS.
struct TlsConfig {
  std::string certificate{};  ///< PEM file: the server's certificate, then those that vouch for it.
  std::string key{};          ///< PEM file: its private key, without a passphrase.
};

/// The memory of the machine itself.
struct HostConfig {
  std::uint64_t memory = 0;               ///< Budget of the image cache [bytes].
  std::uint64_t snapshots = 8ULL << 30U;  ///< Of what is saved of suspended engines [bytes].
  /// For KV of models that have left CPU devices, beside `memory` [bytes].
  std::uint64_t kv = 0;
  std::int64_t step_tokens = 0;  ///< Most tokens of one model in one step; 0: by devices' memory.
  std::uint64_t nic = 0;         ///< What models are fetched at, at most [bytes/s]; 0: no limit.
  friend bool operator==(const HostConfig&, const HostConfig&) = default;
};

/// How much slower than it is a scale-model device acts.
struct PaceConfig {
  Duration step{};   ///< A step completes no earlier than this after it began.
  Duration token{};  ///< Further time for each token of the step.
  /// Further time for each position whose KV the step reads, once for all tokens of a chunk.
  Duration context{};
};

enum class DeviceKind : std::uint8_t {
  kCpu,       ///< Cores and memory of this machine; runs models of our own, and engines.
  kExternal,  ///< Memory that only engines use, such as a GPU of theirs: it is only counted.
  kCuda,      ///< A GPU; runs models of our own, and engines.
};

struct DeviceConfig {
  std::string name{};
  DeviceKind kind = DeviceKind::kCpu;
  std::vector<int> cores{};  ///< CPU numbers; ascending, distinct; of kCpu alone.
  int gpu = -1;              ///< Of kCuda, the driver's number of it; -1 elsewhere.
  std::string no_guests{};   ///< Of kCuda, as Gpu has it, with the next; from the machine.
  std::vector<int> peers{};
  std::uint64_t memory = 0;          ///< Of weights, KV and workspace [bytes]; at least one page.
  std::uint64_t page = 2U << 20U;    ///< [bytes]; a power of two.
  std::uint64_t load_bandwidth = 0;  ///< Emulated link from host memory [bytes/s]; 0: none.
  bool copy = false;                 ///< Weights are copied to the device; always so to a GPU.
  PaceConfig pace{};
  Duration step_budget = 25ms;  ///< What one engine step should take.
  /// Of the memory that models leave to KV, what cached prefixes may have [percent]; 0: none.
  std::int64_t prefix_cache = 100;
};

/// Whether heddle runs models of its own on it.
[[nodiscard]] inline bool runs_models(const DeviceConfig& device) {
  return device.kind != DeviceKind::kExternal;
}

/// How calls of tools are found in a model's answers; text::ToolFormat in the words of this layer.
enum class ToolParser : std::uint8_t { kAuto, kNone, kHermes, kLlama3Json, kMistral };
/// How thinking is found in them.
enum class ReasoningParser : std::uint8_t { kAuto, kNone, kThink };

/// Which hidden states stand for a text; spec::Pooling, or what the model's files say.
enum class Pooling : std::uint8_t { kAuto, kLast, kMean };

/// How fast a model's answers are to come; 0: derived from how fast it is when it is warm.
struct SloConfig {
  Duration ttft{};  ///< To the first token.
  Duration tpot{};  ///< From one token to the next, on average.
};

/// The order in which a device takes up the prompts that wait there.
enum class QueueOrder : std::uint8_t {
  kDeadline,  ///< So that most first tokens come in time.
  kArrival,   ///< First come, first served.
};
/// Who may have the pages of a device for KV.
enum class KvSharing : std::uint8_t {
  kElastic,  ///< Whichever model needs them.
  kStatic,   ///< Each model has the same part of the device, weights included.
};

/// How it is decided what runs where and when; each part can be left out, to see what it is worth.
struct PlannerConfig {
  QueueOrder queue = QueueOrder::kDeadline;
  KvSharing kv = KvSharing::kElastic;
  bool prewarm = true;   ///< Models are loaded before they are asked for, by forecast.
  bool forecast = true;  ///< From earlier days and what has just been; else from the latter alone.
  bool value = true;  ///< The idle model that is worth least goes; else the one used longest ago.
  bool pressure = true;      ///< Models go, and move, to where there is most memory for their KV.
  bool weave = false;        ///< KV of models that lack memory goes to devices that have some.
  int weave_share = 50;      ///< Most of a model's KV that may be elsewhere [percent].
  bool replicas = true;      ///< A model with more load than a device should bear gets another.
  bool share = true;         ///< Several models may run on one device at once.
  bool share_groups = true;  ///< Other models may run on devices of sharded ones.
  bool evict = true;         ///< A model may be evicted for another.
  Duration period = 500ms;   ///< Of looking ahead.
  /// How long a waiting request bears with busy models before some are drained for it.
  Duration drain_after = 2s;
  /// How long a drained model may go on before it goes with its requests; 0: until they end.
  Duration turn{};
  Duration window = 5min;  ///< Of forecasts; a day is a whole number of them.
  Duration day = 24h;      ///< After which load is expected to come again.
  friend bool operator==(const PlannerConfig&, const PlannerConfig&) = default;
};

/// What a model takes and gives, as its configuration says it for listings; nothing follows from
/// it.
struct Capabilities {
  std::vector<std::string> in{};   ///< Of text, audio and image.
  std::vector<std::string> out{};  ///< Likewise.
  bool tools = false;              ///< It calls tools.
  bool reranker = false;           ///< It has /v1/rerank.
  std::int64_t context = 0;        ///< Prompt and answer together [tokens]; 0: not said.

  [[nodiscard]] bool empty() const {
    return in.empty() && out.empty() && !tools && !reranker && context == 0;
  }
};

struct ModelConfig {
  std::string id{};    ///< What requests call it; may contain '/' and ':'.
  std::string path{};  ///< As written: a directory (relative to Config::directory), or a hub id.
  /// kStored, kBf16, kF32 or kI8; of the first, images have what spec::matrix_dtype() says.
  spec::DType dtype = spec::DType::kStored;
  spec::KvType kv = spec::KvType::kComputed;  ///< kv_cache_dtype.
  /// Products may round their inputs to FP8 where the checkpoint says so: activation_dtype.
  bool f8_inputs = true;
  std::vector<std::string> aliases{};
  std::string name{};           ///< For people.
  std::string description{};    ///< For people.
  std::string example{};        ///< A prompt to try, shown when the server starts.
  bool pin = false;             ///< Never evicted.
  bool unlisted = false;        ///< Served, but absent from listings.
  Duration ttl{};               ///< Unloaded after being idle for so long; 0 means never.
  Duration min_residence = 1s;  ///< Not evicted sooner than this after it was loaded.
  SloConfig slo{};
  std::int64_t batch = 32;             ///< Requests at once that one device should bear.
  std::vector<std::string> devices{};  ///< Names of those that it may run on; empty: all.
  std::int64_t tensor_parallel = 1;    ///< Devices that it is sharded over: 1, 2, 4 or 8.
  std::int64_t pipeline_parallel = 1;  ///< Devices that have a range of its layers each: as above.
  /// Hosts of a cluster that fetch it together when none has it, each a range of its layers, at
  /// most; 1: one host alone.
  std::int64_t cold_start_hosts = 4;
  double experts_resident = 1.0;  ///< Share of its experts that are in a device's memory at once.
  std::int64_t context = 0;       ///< Cap of the context length [tokens]; 0: the model's own.
  ToolParser tool_parser = ToolParser::kAuto;                 ///< kAuto: as the template says.
  ReasoningParser reasoning_parser = ReasoningParser::kAuto;  ///< Likewise.
  Pooling pooling = Pooling::kAuto;                           ///< Of embeddings.
  std::int64_t concurrency_limit = 0;    ///< Requests at once, beyond it 429; 0: Limits::queue.
  std::optional<EngineConfig> engine{};  ///< Set: an external engine serves it; no `path`.
  /// Ids of models that cannot stay resident when this one comes (groups, matrix); sorted.
  std::vector<std::string> displaces{};
  std::string metadata{};  ///< A JSON object for listings; empty: none.
  Capabilities capabilities{};
  /// Added to the priority of each of its requests, of which lower ones run first.
  std::int32_t priority = 0;
  std::string base{};     ///< Of a LoRA adapter: the id of the model that it changes.
  std::string adapter{};  ///< Its directory or hub id, as written; empty: this is no adapter.
  /// Rank of the largest adapter that there is room for though none has it yet; 0: of those named.
  std::int64_t adapter_rank = 0;
  /// Those of this model, with its settings beside their own; Config::models has none.
  std::vector<ModelConfig> adapters{};

  /// Devices that an instance of it takes.
  [[nodiscard]] std::int64_t block() const { return tensor_parallel * pipeline_parallel; }
};

/// What who shows a key may do. Each has its own; kAdmin has all of them.
enum class Role : std::uint8_t {
  kInference,  ///< Ask models, and see its own requests.
  kMetrics,    ///< See how models and devices do; of requests, only how many there are.
  kAdmin,      ///< Also see all requests and the log, load and unload.
};

struct ApiKey {
  std::string key{};   ///< Not empty.
  std::string name{};  ///< What logs and messages call it; may be empty.
  Role role = Role::kInference;
  std::optional<std::int64_t> priority{};  ///< The most urgent that its requests can be.
  std::int64_t requests_per_minute = 0;    ///< That it may make; 0: any.
  std::int64_t tokens_per_minute = 0;      ///< Of prompts and answers together; 0: any.
};

struct Limits {
  std::uint64_t body = 32U << 20U;    ///< Request body [bytes].
  std::uint64_t header = 32U << 10U;  ///< Request line and headers [bytes].
  std::int64_t connections = 4096;    ///< Open at once.
  /// With a request of one client (a key, or an address without one); 0: 3/4 of `connections`.
  std::int64_t connections_per_client = 0;
  std::int64_t queue = 512;          ///< Requests per model, waiting and running.
  Duration request_timeout = 10min;  ///< From a request's arrival to its last token.
  Duration load_timeout = 5min;      ///< What a request waits at most for its model.
  bool load_timeout_given = false;   ///< Else an engine's start_timeout counts where it is more.
  Duration idle_timeout = 75s;       ///< A connection between requests.
  Duration header_timeout = 15s;     ///< From the first byte of a request to its last.
  Duration stall_timeout = 30s;      ///< A client that takes none of its answer.
};

/// A server elsewhere that has models of its own: another server of the API, or a hosted one.
struct PeerConfig {
  std::string name{};
  HttpAddress address{};  ///< Of its base URL.
  std::string api_key{};  ///< That opens it; empty: none is sent.
  std::string ca{};       ///< PEM file of who vouches for it; empty: whom the system trusts.
  std::vector<std::string> models{};  ///< That requests may name.
  RequestFilters filters{};
  Duration connect_timeout = 30s;
  Duration tls_timeout = 10s;
  Duration response_timeout{};  ///< To the head of an answer; 0: no limit of its own.
  friend bool operator==(const PeerConfig&, const PeerConfig&) = default;
};

/// How a selector chooses among its targets.
enum class SelectorStrategy : std::uint8_t {
  kPin,        ///< Always the first.
  kWarm,       ///< The first that is in memory, else the first that comes, else the first.
  kSpillover,  ///< Those in memory until each has so many requests, then the next one.
};

/// A name that stands for one of several models, chosen anew for each request (llama-swap).
struct SelectorConfig {
  std::string id{};
  SelectorStrategy strategy = SelectorStrategy::kPin;
  std::vector<std::string> targets{};  ///< Names of models, or of peers' models; not empty.
  std::int64_t spillover = 1;          ///< Requests of each target before the next one takes any.
  std::string name{};                  ///< For people, as the next.
  std::string description{};
  bool unlisted = false;
  std::string metadata{};  ///< A JSON object for listings; empty: none.
};

/// Names that stand for others while an administrator has chosen the profile (llama-swap).
struct ProfileConfig {
  std::string id{};
  std::string description{};
  /// A name that requests use, to the name that is meant; to the empty one: there is no such model.
  std::vector<std::pair<std::string, std::string>> pins{};
};

/// What batches may take.
struct BatchesConfig {
  std::uint64_t disk = std::uint64_t{1} << 30U;  ///< Of all files of clients [bytes].
  std::int64_t at_once = 8;                      ///< Lines that run at once.
  /// A model comes for a line only where nobody has used what is there for so long.
  Duration quiet = 10s;
  friend bool operator==(const BatchesConfig&, const BatchesConfig&) = default;
};

/// LoRA adapters that operators load while the server runs.
struct AdaptersConfig {
  std::vector<std::string> directories{};  ///< Absolute: what is in them may be loaded.
  friend bool operator==(const AdaptersConfig&, const AdaptersConfig&) = default;
};

/// A process of a cluster that others connect to.
struct ClusterMember {
  std::string name{};
  std::string host{};
  std::uint16_t port = 0;
  friend bool operator==(const ClusterMember&, const ClusterMember&) = default;
};

/// Who belongs to a cluster. Hosts and gateways have the numbers of their places in these lists,
/// from 1 on, so that a name is added at the end and never taken out. Where there is a registry, a
/// list may be empty: then they join by it.
struct ClusterConfig {
  std::string name{};
  std::string certs{};     ///< Folder of certificates and keys.
  std::string registry{};  ///< Where managers elect the one that leads; empty: the last started.
  std::optional<ListenAddress> status{};  ///< Where managers and agents tell of themselves.
  std::vector<ClusterMember> managers{};
  std::vector<ClusterMember> hosts{};
  std::vector<std::string> gateways{};
  friend bool operator==(const ClusterConfig&, const ClusterConfig&) = default;
};

/// Files that pages of engines ask for on their own.
inline constexpr std::string_view kStaticFiles = R"(.*\.(js|json|css|png|gif|jpg|jpeg|ico|txt)$)";

/// Where traces of requests go, and of which.
struct TracingConfig {
  /// A collector of OTLP over HTTP; its base path is that which spans are posted to. None: no
  /// request is traced.
  std::optional<HttpAddress> collector{};
  double sample = 1;               ///< Part of the requests of clients that do not say whether to.
  std::string service = "heddle";  ///< What it is called there.
  /// Of requests to the collector, by name. Values may be secrets.
  std::vector<std::pair<std::string, std::string>> headers{};
  friend bool operator==(const TracingConfig&, const TracingConfig&) = default;
};

struct Config {
  std::string file{};       ///< Where it was read from.
  std::string directory{};  ///< Folder of that file; relative paths start here.
  std::vector<ListenAddress> listen{{.host = "127.0.0.1", .port = 8080}};
  std::optional<TlsConfig> tls{};
  std::vector<ApiKey> api_keys{};            ///< Any of them opens; none means no key is asked.
  std::vector<std::string> allowed_hosts{};  ///< Hosts that requests may name; "*": any.
  std::vector<std::string> cors_origins{};   ///< As parse_origin() writes them; "*": any.
  HostConfig host{};
  std::vector<DeviceConfig> devices{};      ///< Never empty.
  std::vector<ModelConfig> models{};        ///< In the order of the file.
  std::vector<PeerConfig> peers{};          ///< In the order of the file.
  std::vector<SelectorConfig> selectors{};  ///< In the order of the file, as the next.
  std::vector<ProfileConfig> profiles{};
  bool list_aliases = false;  ///< Aliases are entries of listings.
  /// Regular expressions (ECMAScript) of paths below /upstream/MODEL that start no engine.
  std::vector<std::string> ignore_paths{std::string(kStaticFiles)};
  std::vector<GroupConfig> groups{};
  std::optional<ClusterConfig> cluster{};  ///< None: this process is alone.
  std::vector<std::string> preload{};  ///< Ids of models that are loaded when the server starts.
  PlannerConfig planner{};
  Limits limits{};
  BatchesConfig batches{};
  AdaptersConfig adapters{};
  TracingConfig tracing{};
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  std::string data_dir{};               ///< For what outlives the process; empty: nothing does.
  std::string event_log{};              ///< File that gets every event of the cores; empty: none.
  Duration shutdown_timeout = 30s;      ///< What running requests get to end after SIGTERM.
  std::vector<std::string> warnings{};  ///< What of the file has no effect; a line each, as errors.
};

/// A GPU as its driver tells it.
struct Gpu {
  std::string name{};
  std::uint64_t memory = 0;  ///< All of it [bytes].
  std::string unusable{};  ///< Why models of ours cannot run on it: "has no ..."; empty: they can.
  std::uint64_t page = 0;  ///< What it maps at once, of which pages are multiples; 0: not known.
  std::uint64_t others = 0;  ///< Of `memory`, what others held when this process began.
  std::string holders{};     ///< Who they are, for messages.
  /// What it lacks to have KV of its models on another GPU, or another's on it: "has no ...";
  /// empty: nothing.
  std::string no_guests{};
  std::vector<int> peers{};  ///< GPUs whose memory its kernels reach; ascending.
};

/// What defaults and checks depend on.
struct Machine {
  std::vector<int> cores{};  ///< CPUs this process may use, ascending.
  std::uint64_t memory = 0;  ///< Physical memory, or the limit of this process's cgroup [bytes].
  std::vector<Gpu> gpus{};   ///< By the driver's numbers.
  std::string no_gpus{};     ///< Why there are none.
};
[[nodiscard]] Machine this_machine();

/// Who says which device an external engine is on.
enum class EnginePlaces : std::uint8_t {
  kHere,    ///< This file, of this machine's devices.
  kByHost,  ///< Each host of a cluster, by settle_engines().
};

/// Parses YAML or JSON. `file` is its name, for messages and relative paths. The error lists all
/// problems, a line each: file, line, key, value and what would be right. Touches no file.
Result<Config> parse_config(std::string_view text,
                            const std::string& file,
                            const Environment& environment,
                            const Machine& machine);

/// The same for a part of a document that is parsed already, such as that of a laboratory's file.
/// The environment gives it no defaults.
Result<Config> parse_config(Node root,
                            const std::string& file,
                            const Machine& machine,
                            EnginePlaces engines = EnginePlaces::kHere);

/// Reads and parses a file, for this machine and environment. kNotFound when it cannot be read.
Result<Config> load_config(const std::string& file, EnginePlaces engines = EnginePlaces::kHere);

/// Says of each engine which device of `config` it is on, and what follows from that. One that
/// cannot be on any gets its `misfit`. Once for what was parsed with EnginePlaces::kByHost.
void settle_engines(Config& config);

/// Parses "host:port", ":port", "port" or "[v6 address]:port", each also behind "http://" or
/// "https://".
Result<ListenAddress> parse_listen(std::string_view text);

/// The JSON schema of the configuration, from the same declarations as the parser.
[[nodiscard]] std::string config_schema();

}  // namespace heddle::config
