#include "policy/prewarm.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "policy/group_index.h"

namespace heddle::policy {
namespace {

/// Ids of replicas that are only planned start here, far above any real one.
constexpr std::uint64_t kPlannedIds = std::uint64_t{1} << 63U;

/// A rank that no existing replica fills.
struct Vacancy {
  const ModelDemand* model = nullptr;
  std::int64_t rank = 0;
  DesiredReplica replica{};
};

int fill_order(ReplicaState state) {
  switch (state) {
    case ReplicaState::kReady:
      return 0;
    case ReplicaState::kDraining:
      return 1;
    case ReplicaState::kLoading:
      return 2;
    case ReplicaState::kServing:
      break;
  }
  return 3;
}

/// Room that a group's devices lack for a replica, and what gives it.
class RoomLacking {
 public:
  RoomLacking(const ReplicaMap& map, std::span<const ReplicaMap::Index> group, std::int64_t pages)
      : group_(group) {
    for (const ReplicaMap::Index device : group) {
      lacking_.push_back(pages - map.devices()[device].free_pages);
    }
  }
  [[nodiscard]] bool any() const {
    return std::any_of(lacking_.begin(), lacking_.end(), [](auto pages) { return pages > 0; });
  }
  /// False: nothing of the replica is where room is lacking.
  bool take(const ReplicaMap::Entry& entry) {
    bool helps = false;
    for (std::size_t i = 0; i < group_.size(); ++i) {
      helps = helps || (lacking_[i] > 0 && on(entry, group_[i]));
    }
    for (std::size_t i = 0; helps && i < group_.size(); ++i) {
      lacking_[i] -= on(entry, group_[i]) ? entry.replica.pages : 0;
    }
    return helps;
  }

 private:
  static bool on(const ReplicaMap::Entry& entry, ReplicaMap::Index device) {
    return std::binary_search(entry.devices.begin(), entry.devices.end(), device);
  }
  std::span<const ReplicaMap::Index> group_;
  std::vector<std::int64_t> lacking_{};
};

/// PrewarmVariant::kRoomiest.
std::optional<FoundGroup> find_roomiest(const ReplicaMap& map, const GroupWant& want) {
  HEDDLE_CHECK(want.devices == 1 || !want.blocks.empty());
  std::vector<std::vector<ReplicaMap::Index>> groups = want.blocks;
  const std::size_t any = want.blocks.empty() ? map.devices().size() : 0;
  for (ReplicaMap::Index device = 0; device < any; ++device) {
    groups.push_back({device});
  }
  std::optional<std::pair<std::tuple<Instant, std::int64_t>, FoundGroup>> best;
  for (const std::vector<ReplicaMap::Index>& group : groups) {
    const GroupLook look = map.look(group);
    const bool usable = std::all_of(group.begin(), group.end(), [&](ReplicaMap::Index device) {
      return map.devices()[device].prewarmable;
    });
    if (!usable || !look.laminar || map.holds(group, want.model)) {
      continue;
    }
    std::vector<const ReplicaMap::Entry*> others;
    for (const ReplicaId id : map.touching(group)) {
      const ReplicaMap::Entry& entry = map.entry(id);
      if (entry.evictable() && entry.replica.worth < want.worth) {
        others.push_back(&entry);
      }
    }
    std::sort(others.begin(), others.end(), [](const auto* a, const auto* b) {
      return std::tie(a->replica.last_used, a->replica.id) <
             std::tie(b->replica.last_used, b->replica.id);
    });
    FoundGroup found{.devices = group, .isolated = false};
    RoomLacking shortage(map, group, want.pages);
    Instant newest = Instant::min();
    LostWorth lost;
    for (std::size_t i = 0; i < others.size() && shortage.any(); ++i) {
      if (shortage.take(*others[i])) {
        newest = others[i]->replica.last_used;
        lost.add(others[i]->replica.worth);
        found.victims.push_back(others[i]->replica.id);
      }
    }
    LostWorth gained;
    gained.add(want.worth);
    const std::tuple key(newest, -look.free_pages);
    if (!shortage.any() && (found.victims.empty() || lost < gained) &&
        (!best || key < best->first)) {
      best = std::pair(key, std::move(found));
    }
  }
  return best ? std::optional(std::move(best->second)) : std::nullopt;
}

class Planner {
 public:
  Planner(ReplicaMap map, const PrewarmOptions& options)
      : map_(std::move(map)), options_(options) {}

  std::vector<PrewarmDecision> plan(std::span<const ModelDemand> models) {
    assign_existing(models);
    sort_vacancies();
    place_vacancies(models);
    std::vector<PrewarmDecision> decisions = std::move(keeps_);
    std::erase_if(decisions, [&](const PrewarmDecision& keep) {
      return std::binary_search(evicted_.begin(), evicted_.end(), keep.replica);
    });
    decisions.insert(decisions.end(),
                     std::make_move_iterator(placements_.begin()),
                     std::make_move_iterator(placements_.end()));
    return decisions;
  }

 private:
  /// Replicas of the model that fill ranks, in the order in which they do.
  [[nodiscard]] std::vector<ReplicaId> existing(ModelId model) const {
    std::vector<std::pair<int, ReplicaId>> ordered;
    for (const ReplicaId id : map_.of_model(model)) {
      const ReplicaState state = map_.entry(id).replica.state;
      const bool counts = state == ReplicaState::kDraining
                              ? options_.placement != PrewarmVariant::kPaper
                              : state != ReplicaState::kServing;
      if (counts) {
        ordered.emplace_back(fill_order(state), id);
      }
    }
    std::sort(ordered.begin(), ordered.end());
    std::vector<ReplicaId> ids;
    for (const auto& [order, id] : ordered) {
      ids.push_back(id);
    }
    return ids;
  }

  void assign_existing(std::span<const ModelDemand> models) {
    for (const ReplicaId id : map_.replicas()) {
      const ReplicaState state = map_.entry(id).replica.state;
      const bool serves = state == ReplicaState::kServing;
      if (!options_.worth_known && (!serves || options_.placement == PrewarmVariant::kPaper)) {
        map_.set_worth(id, {});  // Of models without demand, too.
      }
      if (state == ReplicaState::kReady || state == ReplicaState::kLoading) {
        keeps_.push_back({.reason = PrewarmReason::kSurplus,
                          .model = map_.entry(id).replica.model,
                          .replica = id});
      }
    }
    for (const ModelDemand& model : models) {
      const std::vector<DesiredReplica> desired = desired_replicas(model, options_.score);
      const std::vector<ReplicaId> have = existing(model.model);
      for (std::size_t rank = 0; rank < desired.size(); ++rank) {
        if (rank >= have.size()) {
          vacancies_.push_back({&model, static_cast<std::int64_t>(rank), desired[rank]});
          continue;
        }
        if (!options_.worth_known) {
          map_.set_worth(have[rank], desired[rank].worth);
        }
        const auto keep = std::lower_bound(
            keeps_.begin(), keeps_.end(), have[rank], [](const PrewarmDecision& k, ReplicaId id) {
              return k.replica < id;
            });
        if (keep != keeps_.end() && keep->replica == have[rank]) {
          keep->reason = PrewarmReason::kWanted;
          keep->rank = static_cast<std::int64_t>(rank);
          keep->kind = desired[rank].kind;
          keep->worth = desired[rank].worth;
        }
      }
    }
  }

  void sort_vacancies() {
    std::sort(vacancies_.begin(), vacancies_.end(), [](const Vacancy& a, const Vacancy& b) {
      return std::tuple(b.replica.worth, b.model->load_time, a.model->model, a.rank) <
             std::tuple(a.replica.worth, a.model->load_time, b.model->model, b.rank);
    });
  }

  void place_vacancies(std::span<const ModelDemand> models) {
    std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
    for (const ModelDemand& model : models) {
      sizes.emplace_back(model.devices, model.pages_per_device);
    }
    const bool evicts = options_.placement == PrewarmVariant::kCorrected;
    const bool roomiest = options_.placement == PrewarmVariant::kRoomiest;
    GroupIndex index(map_, sizes, evicts ? options_.victim_groups : 0);
    for (const Vacancy& vacancy : vacancies_) {
      GroupWant want{.model = vacancy.model->model,
                     .devices = vacancy.model->devices,
                     .pages = vacancy.model->pages_per_device,
                     .worth = vacancy.replica.worth,
                     .blocks = near_of(*vacancy.model)};
      const auto find = [&] {
        std::optional<FoundGroup> found = roomiest ? find_roomiest(map_, want) : index.find(want);
        return found || !evicts ? found : index.find_by_evicting(want);
      };
      std::optional<FoundGroup> found = want.blocks.empty() ? std::nullopt : find();
      if (!found) {
        want.blocks = blocks_of(*vacancy.model);
        want.alone = vacancy.model->alone;
        found = find();
      }
      place(vacancy, found, index);
    }
    std::sort(evicted_.begin(), evicted_.end());
  }

  [[nodiscard]] std::vector<std::vector<ReplicaMap::Index>> blocks_of(
      const ModelDemand& model) const {
    std::vector<std::vector<ReplicaMap::Index>> blocks;
    for (const std::vector<DeviceId>& devices : model.blocks) {
      std::vector<ReplicaMap::Index>& block = blocks.emplace_back();
      for (const DeviceId device : devices) {
        block.push_back(map_.index_of(device));
      }
      std::sort(block.begin(), block.end());
    }
    return blocks;
  }

  [[nodiscard]] std::vector<std::vector<ReplicaMap::Index>> near_of(
      const ModelDemand& model) const {
    std::vector<std::vector<ReplicaMap::Index>> near;
    for (const DeviceId device : model.near) {
      near.push_back({map_.index_of(device)});
    }
    return near;
  }

  void place(const Vacancy& vacancy, const std::optional<FoundGroup>& found, GroupIndex& index) {
    PrewarmDecision decision{.action = PrewarmAction::kSkip,
                             .reason = PrewarmReason::kNoRoom,
                             .model = vacancy.model->model,
                             .rank = vacancy.rank,
                             .kind = vacancy.replica.kind,
                             .worth = vacancy.replica.worth};
    if (!found) {
      placements_.push_back(std::move(decision));
      return;
    }
    std::vector<ReplicaMap::Index> changed = found->devices;
    for (const ReplicaId victim : found->victims) {
      evict(victim, vacancy.model->model, changed);
    }
    decision.action = PrewarmAction::kLoad;
    decision.reason = found->isolated ? PrewarmReason::kIsolated : PrewarmReason::kShared;
    if (!found->victims.empty()) {
      decision.reason = PrewarmReason::kMadeRoom;
    }
    for (const ReplicaMap::Index device : found->devices) {
      decision.devices.push_back(map_.devices()[device].id);
    }
    map_.place({.id = ReplicaId(kPlannedIds + planned_++),
                .model = decision.model,
                .state = ReplicaState::kLoading,
                .devices = decision.devices,
                .pages = vacancy.model->pages_per_device,
                .worth = decision.worth,
                .pinned = true});  // Nothing planned here is evicted here.
    placements_.push_back(std::move(decision));
    std::sort(changed.begin(), changed.end());
    index.update(changed);
  }

  void evict(ReplicaId victim, ModelId made_room_for, std::vector<ReplicaMap::Index>& changed) {
    const ReplicaMap::Entry& entry = map_.entry(victim);
    placements_.push_back({.action = PrewarmAction::kEvict,
                           .reason = PrewarmReason::kMadeRoom,
                           .model = entry.replica.model,
                           .replica = victim,
                           .worth = entry.replica.worth,
                           .made_room_for = made_room_for});
    changed.insert(changed.end(), entry.devices.begin(), entry.devices.end());
    evicted_.push_back(victim);
    map_.remove(victim);
  }

  ReplicaMap map_;
  PrewarmOptions options_;
  std::vector<PrewarmDecision> keeps_{};  // By replica id.
  std::vector<PrewarmDecision> placements_{};
  std::vector<Vacancy> vacancies_{};
  std::vector<ReplicaId> evicted_{};
  std::uint64_t planned_ = 0;
};

}  // namespace

std::vector<PrewarmDecision> plan_prewarm(ReplicaMap map,
                                          std::span<const ModelDemand> models,
                                          const PrewarmOptions& options) {
  return Planner(std::move(map), options).plan(models);
}

}  // namespace heddle::policy
