#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "ledger/drop_reason.h"
#include "ledger/ledger.h"
#include "spec/sampling.h"

namespace heddle::core {

/// When things happened to a request; zero where they have not. For its story and its metrics.
struct RequestTimes {
  Instant arrived{};     ///< Accepted by the gateway.
  Instant load_began{};  ///< It had to wait for its model, whose load began (or was under way).
  Instant dispatched{};  ///< Sent to a worker (the last time before its first token).
  Instant first_token{};
  Instant finished{};

  /// When its worker dies, a request waits and is sent again; what came before stays as it was, so
  /// that no phase ends before it began.
  void note_load(Instant now) {
    if (dispatched == Instant{} && first_token == Instant{}) {
      load_began = now;
    }
  }
  void note_dispatch(Instant now) {
    if (first_token == Instant{}) {
      dispatched = now;
    }
  }
};

/// Everything that is needed to run a request, and to run the rest of it again somewhere else:
/// prompt, parameters (the seed is drawn already) and every token received. Owned by the gateway,
/// which appends the tokens; the rest of the system holds none of it durably.
struct RequestRecord {
  RequestId id{};
  ModelId model{};
  std::vector<TokenId> prompt{};
  std::vector<spec::SamplingParams> choices{};    ///< One per answer; `n` of them.
  std::vector<std::vector<TokenId>> generated{};  ///< Per choice, in order.
  std::vector<spec::FinishReason> finished{};     ///< Per choice; kNone while it runs.
  std::int32_t priority = 0;                      ///< Lower runs first.
  std::optional<Instant> deadline{};              ///< Fails with kDeadlineExceeded after this.
  /// The client named no length: an answer may end where the memory of its device does. Where it
  /// named one, the request runs where that fits.
  bool open_ended = false;
  std::string cache_salt{};  ///< Only requests of the same salt share cached prefixes.
  RequestTimes times{};
  std::int32_t restarts = 0;         ///< Workers that died under it.
  std::optional<DeviceId> device{};  ///< Where it was dispatched last.
  /// Of the prompt, what a cached prefix spared every choice; known with their first tokens.
  std::optional<std::int64_t> cached_tokens{};
};

/// One generated token. Positions count from 0 per choice; a duplicate after a resume is dropped by
/// whoever owns the record, before anybody else sees it.
struct TokenEvent {
  RequestId request{};
  std::uint32_t choice = 0;
  std::int64_t position = 0;
  TokenId token = 0;
  spec::FinishReason finish = spec::FinishReason::kNone;
  spec::TokenDetails details{};
};

/// Where a request's events go; one per request, called on the loop thread only.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  /// New tokens of one step, in order, already appended to the record.
  virtual void on_tokens(const std::vector<TokenEvent>& tokens) = 0;
  /// The request waits for its model: `loaded` of `total` bytes are in place.
  virtual void on_loading(std::uint64_t loaded, std::uint64_t total) = 0;
  /// All choices have finished; nothing follows.
  virtual void on_done() = 0;
  /// The request failed; nothing follows.
  virtual void on_error(const Error& error) = 0;
};

/// The life of a (device, model) pair. DESIGN's `absent → loading → warm → serving → draining`.
enum class Residency : std::uint8_t { kAbsent, kLoading, kWarm, kServing, kDraining };

/// Why a model was loaded.
enum class LoadReason : std::uint8_t {
  kRequest,   ///< A request waited for it.
  kOperator,  ///< Somebody asked for the load itself.
};
inline constexpr std::size_t kLoadReasons = 2;

/// Why a model was taken off a device. The death of a worker is no eviction.
enum class EvictionReason : std::uint8_t {
  kDisplaced,  ///< Another model was loaded in its place.
  kOutgrown,   ///< The requests of another model needed its pages.
  kIdle,       ///< Its time to live passed without a request.
  kOperator,   ///< Somebody asked for it.
  kRemoved,    ///< The configuration no longer has it.
  kCramped,    ///< A request of its own needs a device with more memory.
  kFailed,     ///< Its load failed.
};
inline constexpr std::size_t kEvictionReasons = 7;

/// As in metric labels: "request", "displaced".
[[nodiscard]] std::string_view name(LoadReason reason);
[[nodiscard]] std::string_view name(EvictionReason reason);

/// A model as listings and metrics show it. Reading it wakes nothing.
struct ModelStatus {
  ModelId id{};
  std::string name{};
  Residency residency = Residency::kAbsent;  ///< The furthest along of all devices.
  std::optional<DeviceId> device{};          ///< Where that is.
  bool host_cached = false;                  ///< Its image is complete in the host cache.
  std::uint64_t image_bytes = 0;
  std::uint64_t loaded_bytes = 0;
  std::int64_t kv_pages = 0;
  std::int64_t requests_running = 0;
  std::int64_t requests_waiting = 0;
  std::array<std::uint64_t, kLoadReasons> loads{};          ///< Indexed by LoadReason.
  std::array<std::uint64_t, kEvictionReasons> evictions{};  ///< Indexed by EvictionReason.
  Instant last_used{};
  std::optional<Error> failure{};  ///< Why the last load failed; cleared by a success.
};

/// How well the prefix cache of a device does for a model, since its worker started.
struct PrefixCounts {
  ModelId model{};
  std::uint64_t queried_tokens = 0;  ///< Of sequences that sought a prefix.
  std::uint64_t hit_tokens = 0;      ///< Of these, what was found.
  friend bool operator==(const PrefixCounts&, const PrefixCounts&) = default;
};

struct DeviceStatus {
  DeviceId id{};
  std::string name{};
  bool up = false;
  WorkerEpoch epoch{};
  std::uint64_t restarts = 0;
  std::uint64_t page_bytes = 0;
  ledger::PoolUsage usage{};  ///< Pages by lease kind.
  std::vector<PrefixCounts> prefixes{};
  ledger::DropCounts dropped_pages{};  ///< Of cached prefixes, since its worker started.
};

/// What a gateway asks of the system behind it; single-threaded, on the loop thread. The one
/// implementation behind `heddle serve` is manager::Manager; tests have fakes.
class Serving {
 public:
  virtual ~Serving() = default;

  /// Runs `record` to its end. Events come to `sink`, never from within this call, until on_done,
  /// on_error or cancel(). Both live until then.
  virtual void start(std::shared_ptr<RequestRecord> record, std::shared_ptr<RequestSink> sink) = 0;
  /// One choice needs no more tokens (a stop string was found): `reason` becomes its finish.
  virtual void finish_choice(RequestId request,
                             std::uint32_t choice,
                             spec::FinishReason reason) = 0;
  /// Nobody wants the answer any more. Its sink hears nothing after this call.
  virtual void cancel(RequestId request) = 0;

  /// Makes the model resident, evicting others as for a request. `done` is called once.
  virtual void load(ModelId model, std::function<void(Result<void>)> done) = 0;
  /// Lets the model's running requests end, then evicts it everywhere. `done` is called once.
  virtual void unload(ModelId model,
                      EvictionReason why,
                      std::function<void(Result<void>)> done) = 0;

  [[nodiscard]] virtual std::vector<ModelStatus> models() const = 0;
  [[nodiscard]] virtual std::vector<DeviceStatus> devices() const = 0;
  [[nodiscard]] virtual ledger::PoolUsage host_usage() const = 0;
};

}  // namespace heddle::core
