#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/load_history.h"
#include "policy/nic.h"
#include "sim/control.h"
#include "sim/planes/planes.h"
#include "sim/world.h"

namespace heddle::sim {

/// Flags of one policy set, each asked for once; what was never asked for is an error.
class Flags {
 public:
  explicit Flags(const std::map<std::string, std::string>& values) : values_(values) {}
  /// The value of a flag, or `standard`.
  double number(const std::string& name, double standard);
  bool on(const std::string& name, bool standard) { return number(name, standard ? 1 : 0) != 0; }
  /// Empty when everything was understood.
  [[nodiscard]] std::string problem() const;
  /// A value that is a number, and not one that will do.
  void reject(const std::string& name, const std::string& why);

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> asked_{};
  std::string problem_{};
};

/// Of the fetch of one stage of a replica.
inline policy::FetchId fetch_id(ReplicaId replica, std::size_t stage) {
  constexpr std::uint64_t kStages = 8;  // At most, of a replica.
  return policy::FetchId(replica.value() * kStages + stage);
}

/// How forecasts cut time: flags `window` [s] (300) and `day` [s] (86400, a whole number of
/// windows), as `planner.window` and `planner.day` of a live system's configuration.
[[nodiscard]] policy::Calendar calendar_of(Flags& flags);

/// Requests that wait for an instance of their model, oldest first.
class RequestQueues {
 public:
  void push(const World& world, LiveId id);
  [[nodiscard]] bool empty(ModelId model) const { return size(model) == 0; }
  [[nodiscard]] std::size_t size(ModelId model) const;
  [[nodiscard]] LiveId front(ModelId model) const;
  LiveId pop(ModelId model);
  /// Models that have requests waiting, by id.
  [[nodiscard]] const std::set<ModelId>& models() const { return waiting_; }

 private:
  using Queue = std::set<std::pair<RequestId, LiveId>>;
  std::map<ModelId, Queue> queues_{};
  std::set<ModelId> waiting_{};
};

/// How far forecasts were off: sum of |forecast - real| over sum of real, as ControlPlane reports
/// it.
class ForecastRecord {
 public:
  void judge(double forecast, double real) {
    off_ += std::abs(forecast - real);
    real_ += real;
  }
  /// nullopt while there was nothing to forecast.
  [[nodiscard]] std::optional<double> error() const {
    return real_ > 0 ? std::optional(off_ / real_) : std::nullopt;
  }

 private:
  double off_ = 0;
  double real_ = 0;
};

/// Wants of GPUs that found none, until some come free: who wants as much need not look again.
class Exhausted {
 public:
  void add(std::int64_t gpus, std::int64_t pages) { wants_[gpus] = pages; }
  [[nodiscard]] bool is(std::int64_t gpus, std::int64_t pages) const {
    return std::any_of(wants_.begin(), wants_.end(), [&](const auto& want) {
      return gpus >= want.first && pages >= want.second;
    });
  }
  void clear() { wants_.clear(); }

 private:
  std::map<std::int64_t, std::int64_t> wants_{};  ///< GPUs of one server to pages on each.
};

/// Servers in an order, those of each kind (GPUs of one size, so many of them) by themselves: which
/// kinds a model fits is asked once a kind, before anybody is shortlisted.
class ServersByRank {
 public:
  /// Gives a server a place in the order, or another one. O(log servers).
  void put(const World& world, HostId host, std::int64_t rank);
  void erase(HostId host);
  /// The first `count` of those that could hold the model, by rank, then by id. O(kinds * count).
  [[nodiscard]] std::vector<HostId> first(const World& world,
                                          ModelId model,
                                          std::size_t count) const;

 private:
  using Kind = std::pair<std::int64_t, std::size_t>;  ///< Pages of a GPU, GPUs.
  std::map<Kind, std::set<std::pair<std::int64_t, HostId>>> by_kind_{};
  std::map<HostId, std::pair<Kind, std::int64_t>> placed_{};
};

/// Servers by the room they have, as of each one's last update, so that a decision need not look at
/// all of them. Servers that could never hold a model are passed over, however much room they have.
class RoomIndex {
 public:
  /// Counts the free pages of a server's GPUs that `open` accepts, GPUs before pages. A server that
  /// is down has no room at all. O(its GPUs + log servers).
  void update(const World& world, HostId host, const std::function<bool(const Gpu&)>& open);
  /// The same of all its GPUs, pages alone.
  void update(const World& world, HostId host);
  /// Of the servers that are up and could hold the model those with most room, at most `count`; by
  /// falling room, then by id.
  [[nodiscard]] std::vector<HostId> most(const World& world,
                                         ModelId model,
                                         std::size_t count) const;
  /// These and those where the model is, by id.
  [[nodiscard]] std::vector<HostId> near(const World& world,
                                         ModelId model,
                                         std::size_t count) const;

 private:
  void put(const World& world, HostId host, std::int64_t room);
  ServersByRank by_room_{};  ///< Room, negated.
};

/// The serving replica of a model with the fewest requests, if it has fewer than `limit`.
[[nodiscard]] std::optional<ReplicaId> least_loaded(const World& world,
                                                    ModelId model,
                                                    std::int64_t limit);

/// Dispatches a model's waiting requests while an instance has fewer than `limit`.
void dispatch_waiting(
    const World& world, Actions& actions, RequestQueues& queues, ModelId model, std::int64_t limit);

/// Replicas of a model in any of these states.
[[nodiscard]] std::int64_t count_replicas(const World& world,
                                          ModelId model,
                                          std::initializer_list<ReplicaPhase> states);

/// Requests in the system, per model, and their average over the last few seconds.
class LoadMeter {
 public:
  explicit LoadMeter(std::size_t models) : models_(models) {}
  void arrived(Instant now, ModelId model) { change(now, model, 1); }
  void left(Instant now, ModelId model) { change(now, model, -1); }
  [[nodiscard]] std::int64_t load(ModelId model) const { return models_[model.value()].load; }
  /// Integral of the load since time began [requests * ns].
  [[nodiscard]] double integral(Instant now, ModelId model) const;

 private:
  struct PerModel {
    std::int64_t load = 0;
    double integral = 0;
    Instant since{};
  };
  void change(Instant now, ModelId model, std::int64_t by);
  std::vector<PerModel> models_;
};

/// GPUs of one server, tp of them, that `fits` accepts; the first such group in order of servers,
/// or none. O(GPUs).
[[nodiscard]] std::optional<std::vector<GpuId>> first_group(
    const World& world, std::int64_t tp, const std::function<bool(const Gpu&)>& fits);

/// Pages of a GPU that nobody has or has been promised: all but weights, overheads, and of KV what
/// each engine may have, or has where it has no limit. O(replicas there).
[[nodiscard]] std::int64_t unpromised_pages(const World& world, GpuId gpu);

/// Pages that a replica needs of its first GPU to begin.
[[nodiscard]] std::int64_t start_pages(const World& world, const Replica& replica);

/// Evicts an instance that has been idle for `keep_alive`; sets a timer with its id as the tag when
/// that will be later.
void evict_when_idle(const World& world, Actions& actions, ReplicaId id, Duration keep_alive);

/// Whole weights on `gpus` of one server, from its memory if they lie there, else from the store.
[[nodiscard]] StartSpec whole(const World& world, ModelId model, std::vector<GpuId> gpus);

/// An external engine's place, which never changes, and what it takes there.
struct EnginePlace {
  std::vector<GpuId> gpus{};  ///< None: it could run nowhere.
  std::int64_t pages = 0;     ///< Of each of them, KV among them.
  std::int64_t kv_pages = 0;  ///< Of these.
  Duration swap_in{};         ///< Back from host memory ...
  Duration swap_out{};        ///< ... and there.
};

/// Restored engines can be a little larger than they were.
inline constexpr std::int64_t kEngineMarginPercent = 1;

/// Gives each of `models` GPUs of one server, in their order: those to which the least is assigned
/// yet. Its KV has `kv_bytes` in sum, or what the GPU has beside the rest of it.
[[nodiscard]] std::vector<EnginePlace> place_engines(const World& world,
                                                     const std::vector<ModelId>& models,
                                                     double kv_bytes);

/// How a suspended external engine comes to its GPUs: back from host memory in `swap_in`, or, where
/// its image does not lie there, started like any stock engine and then suspended there in future.
/// Its KV is its own from the start on.
[[nodiscard]] StartSpec resume(const World& world, ModelId model, const EnginePlace& place);

/// Models that were placed once and lost their GPUs: each begins again, from host memory, on the
/// same GPUs when these are up.
void restore(const World& world, Actions& actions, std::span<const StartSpec> placed);

/// What planes whose placement never changes do after the start: an arrival waits for the instances
/// of its model, or is refused where there are none; who was lost begins again.
void serve_in_place(const Notice& notice,
                    const World& world,
                    Actions& actions,
                    RequestQueues& queues,
                    std::span<const StartSpec> placed);

/// A placement that never changes: models by falling weight, each on the group that has most pages
/// left once `kv_pages` and all are taken. Models that fit nowhere have no GPUs.
[[nodiscard]] std::vector<std::vector<GpuId>> place_by_memory(
    const World& world, const std::vector<std::int64_t>& kv_pages);

}  // namespace heddle::sim
