#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/replica_score.h"

namespace heddle::policy {

/// A model's weights on the devices of one server, whole or on the way there.
using ReplicaId = Id<struct ReplicaIdTag>;

enum class ReplicaState : std::uint8_t {
  kReady,     ///< Loaded, and the communicator of its devices exists: a launch hits it.
  kLoading,   ///< On the way; a launch may attach to it.
  kDraining,  ///< An instance in its grace period: it stays as a replica when it ends.
  kServing,   ///< An instance that takes requests.
};

/// A device as prewarming sees it.
struct MapDevice {
  DeviceId id{};
  std::int64_t server = 0;
  /// That weights may take now: all that is free on an idle or universal device, the KV pages that
  /// have been released on one in its grace period.
  std::int64_t free_pages = 0;
  bool prewarmable = true;  ///< Idle, universal or in grace; not where an instance takes requests.
  bool launchable = true;   ///< Idle or universal: an instance may take the whole device.
};

struct PlacedReplica {
  ReplicaId id{};
  ModelId model{};
  ReplicaState state = ReplicaState::kReady;
  std::vector<DeviceId> devices{};  ///< All of one server.
  std::int64_t pages = 0;           ///< On each of them.
  ReplicaWorth worth{};
  bool pinned = false;  ///< Never evicted to make room.
  Instant last_used{};  ///< Or loaded, if that was later.
  /// Has requests, or had some a moment ago: what is to have its devices to itself would wait.
  bool in_use = false;
};

/// What lies on a group of devices.
struct GroupLook {
  bool laminar = true;          ///< Every replica there contains the group or lies within it.
  std::int64_t free_pages = 0;  ///< On the device of the group that has the least.
  std::int64_t replicas = 0;    ///< That touch the group, each counted once.
  std::optional<ReplicaWorth> highest{};   ///< Of these.
  double score_sum = 0;                    ///< Of these.
  std::optional<ReplicaWorth> cheapest{};  ///< Of these, the least that may be evicted.
  bool in_use = false;                     ///< Any of these.
};

/// Which replicas lie where: the state that prewarming and launching decide on. A value; the core
/// keeps one up to date, and a plan works on a copy. Devices are addressed by their index in the
/// order of (server, id), so that the devices of a server are neighbours.
/// place, remove and look cost O(replicas on the devices named).
class ReplicaMap {
 public:
  using Index = std::uint32_t;

  /// A server's devices are [first, first + count).
  struct Server {
    Index first = 0;
    Index count = 0;
  };

  struct Entry {
    PlacedReplica replica{};
    std::vector<Index> devices{};  ///< Ascending.
    [[nodiscard]] bool evictable() const {
      return !replica.pinned &&
             (replica.state == ReplicaState::kReady || replica.state == ReplicaState::kLoading);
    }
  };

  explicit ReplicaMap(std::vector<MapDevice> devices);

  /// Adds a replica that `free_pages` of its devices already account for.
  void add(PlacedReplica replica);
  /// Adds a replica and takes its pages from its devices' free ones.
  void place(PlacedReplica replica);
  /// Takes a replica away and returns its pages to its devices.
  void remove(ReplicaId id);
  void set_worth(ReplicaId id, ReplicaWorth worth);
  void set_state(ReplicaId id, ReplicaState state);
  void set_device(const MapDevice& device);  ///< Known by its id; its server does not change.

  [[nodiscard]] std::span<const MapDevice> devices() const { return devices_; }
  [[nodiscard]] std::span<const Server> servers() const { return servers_; }
  [[nodiscard]] const Server& server_of(Index device) const;
  [[nodiscard]] Index index_of(DeviceId id) const;
  /// All replicas, ascending.
  [[nodiscard]] std::vector<ReplicaId> replicas() const;
  [[nodiscard]] const Entry& entry(ReplicaId id) const;
  /// The replicas of a model, ascending.
  [[nodiscard]] std::vector<ReplicaId> of_model(ModelId model) const;

  /// What lies on `group`, ascending indices of one server.
  [[nodiscard]] GroupLook look(std::span<const Index> group) const;
  /// Whether a device of `group` holds a replica of `model`.
  [[nodiscard]] bool holds(std::span<const Index> group, ModelId model) const;
  /// The replicas that touch `group`, each once, ascending.
  [[nodiscard]] std::vector<ReplicaId> touching(std::span<const Index> group) const;

  /// How many devices two ascending lists share, and the first of these.
  struct Overlap {
    std::size_t count = 0;
    Index first = 0;
  };
  [[nodiscard]] static Overlap overlap(std::span<const Index> a, std::span<const Index> b);

 private:
  using Slot = std::uint32_t;

  Slot insert(PlacedReplica replica);
  void change_free_pages(const Entry& entry, std::int64_t by);

  std::vector<MapDevice> devices_;
  std::vector<Server> servers_;
  std::vector<Index> server_of_;                     // By device.
  std::vector<std::pair<DeviceId, Index>> indices_;  // Ascending.
  std::vector<Entry> entries_;                       // By slot; free slots are in `vacant_`.
  std::vector<Slot> vacant_;
  std::map<ReplicaId, Slot> slots_;
  std::map<ModelId, std::vector<ReplicaId>> by_model_;
  std::vector<std::vector<Slot>> on_device_;  // In the order of replica ids.
};

}  // namespace heddle::policy
