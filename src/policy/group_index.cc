#include "policy/group_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// Blocks walked over in find_by_evicting, for each one weighed.
constexpr std::int64_t kWalk = 8;
/// Blocks of an uncertain size class that are tried.
constexpr int kUncertain = 64;
/// Parts of what a replica is worth that are worth losing for a better place.
constexpr double kLostStep = 0.1;

/// At most `count` of the ascending `values`, the least and evenly chosen others.
std::vector<std::int64_t> thin(const std::vector<std::int64_t>& values, std::size_t count) {
  if (values.size() <= count) {
    return values;
  }
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < count; ++i) {
    kept.push_back(values[i * values.size() / count]);
  }
  return kept;
}

/// The next combination of `chosen` ascending positions out of `count`; false after the last one.
bool next_combination(std::vector<std::size_t>& chosen, std::size_t count) {
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (chosen[i] + (chosen.size() - i) < count) {
      ++chosen[i];
      for (std::size_t j = i + 1; j < chosen.size(); ++j) {
        chosen[j] = chosen[j - 1] + 1;
      }
      return true;
    }
  }
  return false;
}

/// What is lost, in parts of what the new replica is worth.
std::pair<double, double> steps(const LostWorth& lost, const GroupWant& want) {
  const double step = kLostStep * want.worth.score;
  return {lost.basic, step > 0 ? std::floor(lost.burst / step) : lost.burst};
}

bool worth_less(const std::optional<ReplicaWorth>& highest, const ReplicaWorth& worth) {
  return !highest || *highest < worth;
}

/// How many pages each device of a group lacks for a replica, while victims come and go.
class Shortage {
 public:
  using Index = ReplicaMap::Index;

  Shortage(const ReplicaMap& map, std::span<const Index> group, std::int64_t pages)
      : group_(group) {
    for (const Index device : group) {
      deficits_.push_back(pages - map.devices()[device].free_pages);
    }
  }

  void evict(const ReplicaMap::Entry& entry) { change(entry, -entry.replica.pages); }
  void keep(const ReplicaMap::Entry& entry) { change(entry, entry.replica.pages); }

  [[nodiscard]] bool anywhere() const {
    return std::any_of(
        deficits_.begin(), deficits_.end(), [](std::int64_t pages) { return pages > 0; });
  }
  /// On one of the devices where the replica lies.
  [[nodiscard]] bool where(const ReplicaMap::Entry& entry) const {
    for (std::size_t i = 0; i < group_.size(); ++i) {
      if (deficits_[i] > 0 && lies_on(entry, group_[i])) {
        return true;
      }
    }
    return false;
  }

 private:
  static bool lies_on(const ReplicaMap::Entry& entry, Index device) {
    return std::binary_search(entry.devices.begin(), entry.devices.end(), device);
  }
  void change(const ReplicaMap::Entry& entry, std::int64_t pages) {
    for (std::size_t i = 0; i < group_.size(); ++i) {
      deficits_[i] += lies_on(entry, group_[i]) ? pages : 0;
    }
  }

  std::span<const Index> group_;
  std::vector<std::int64_t> deficits_{};
};

}  // namespace

GroupIndex::GroupIndex(const ReplicaMap& map,
                       std::span<const std::pair<std::int64_t, std::int64_t>> sizes,
                       std::int64_t victims)
    : map_(map), victims_(victims), iota_(map.devices().size()), failures_(map.servers().size()) {
  std::iota(iota_.begin(), iota_.end(), Index{0});
  std::map<std::int64_t, std::set<std::int64_t>> pages_by_devices;
  for (const auto& [devices, pages] : sizes) {
    HEDDLE_CHECK(devices > 0 && pages >= 0);
    pages_by_devices[devices].insert(pages);
  }
  for (const auto& [devices, pages] : pages_by_devices) {
    if (std::has_single_bit(static_cast<std::uint64_t>(devices))) {
      add_level(static_cast<Index>(devices), {pages.begin(), pages.end()});
    }
  }
}

void GroupIndex::add_level(Index size, std::vector<std::int64_t> pages) {
  Level level{.size = size, .sizes = thin(pages, kSizeClasses)};
  level.block_of.assign(iota_.size(), -1);
  level.ahead.resize(level.sizes.size() + 1);
  level.behind.resize(level.sizes.size() + 1);
  for (const ReplicaMap::Server& server : map_.servers()) {
    for (Index at = 0; at + size <= server.count; at += size) {
      for (Index i = 0; i < size; ++i) {
        level.block_of[server.first + at + i] = static_cast<std::int64_t>(level.blocks.size());
      }
      level.blocks.push_back({.first = server.first + at});
    }
  }
  for (Index block = 0; block < level.blocks.size(); ++block) {
    refresh(level, block);
  }
  levels_.push_back(std::move(level));
}

GroupIndex::Level* GroupIndex::level_of(std::int64_t devices) {
  const auto found = std::find_if(
      levels_.begin(), levels_.end(), [&](const Level& level) { return level.size == devices; });
  return found == levels_.end() ? nullptr : &*found;
}

std::span<const GroupIndex::Index> GroupIndex::devices_of(const Level& level, Index block) const {
  return std::span(iota_).subspan(level.blocks[block].first, level.size);
}

void GroupIndex::unlink(Level& level, Index block) {
  const Block& known = level.blocks[block];
  std::vector<BySum>& buckets = known.behind ? level.behind : level.ahead;
  buckets[known.bucket].erase({known.score_sum, block});
  if (known.cheapest) {
    level.by_cheapest.erase({*known.cheapest, block});
  }
}

void GroupIndex::refresh(Level& level, Index block) {
  unlink(level, block);
  Block& known = level.blocks[block];
  known = {.first = known.first};
  const auto group = devices_of(level, block);
  const auto usable = [&](Index device) { return map_.devices()[device].prewarmable; };
  if (!std::all_of(group.begin(), group.end(), usable)) {
    return;
  }
  const GroupLook look = map_.look(group);
  known.score_sum = look.score_sum;
  known.highest = look.highest;
  if (look.laminar) {
    const auto above = std::upper_bound(level.sizes.begin(), level.sizes.end(), look.free_pages);
    known.bucket = static_cast<std::size_t>(above - level.sizes.begin());
    if (known.bucket > 0) {
      level.ahead[known.bucket].emplace(known.score_sum, block);
    }
  }
  if (victims_ > 0 && look.cheapest) {
    known.cheapest = look.cheapest;
    level.by_cheapest.emplace(*known.cheapest, block);
  }
}

void GroupIndex::update(std::span<const Index> devices) {
  for (Level& level : levels_) {
    std::int64_t last = -1;
    for (const Index device : devices) {
      const std::int64_t block = level.block_of[device];
      if (block >= 0 && block != last) {
        refresh(level, static_cast<Index>(block));
        last = block;
      }
    }
  }
  for (const Index device : devices) {
    const ReplicaMap::Server& server = map_.server_of(device);
    failures_[static_cast<std::size_t>(&server - map_.servers().data())].clear();
  }
}

std::optional<GroupIndex::Index> GroupIndex::best_of(Level& level,
                                                     std::vector<BySum>& buckets,
                                                     const GroupWant& want) {
  const auto at = std::lower_bound(level.sizes.begin(), level.sizes.end(), want.pages);
  const auto sure = static_cast<std::size_t>(at - level.sizes.begin()) + 1;
  const bool exact = at != level.sizes.end() && *at == want.pages;
  std::optional<std::pair<double, Index>> best;
  for (std::size_t bucket = std::max<std::size_t>(exact ? sure : sure - 1, 1);
       bucket < buckets.size();
       ++bucket) {
    BySum& blocks = buckets[bucket];
    int tries = kUncertain;
    for (auto it = blocks.begin(); it != blocks.end();) {
      Block& block = level.blocks[it->second];
      if (!block.behind && !worth_less(block.highest, want.worth)) {
        block.behind = true;
        level.behind[bucket].insert(*it);
        it = blocks.erase(it);
        continue;
      }
      const auto group = devices_of(level, it->second);
      if (bucket < sure && (map_.look(group).free_pages < want.pages && tries-- > 0)) {
        ++it;
        continue;
      }
      if (bucket < sure && tries <= 0) {
        break;
      }
      if (!map_.holds(group, want.model)) {
        best = best ? std::min(*best, *it) : *it;
        break;
      }
      ++it;
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

std::optional<FoundGroup> GroupIndex::find_block(Level& level, const GroupWant& want) {
  for (const bool isolated : {true, false}) {
    if (const auto block = best_of(level, isolated ? level.ahead : level.behind, want)) {
      const auto group = devices_of(level, *block);
      return FoundGroup{.devices = {group.begin(), group.end()}, .isolated = isolated};
    }
  }
  return std::nullopt;
}

std::optional<FoundGroup> GroupIndex::find_subset(const GroupWant& want) {
  const auto needed = static_cast<std::size_t>(want.devices);
  std::optional<std::tuple<bool, double, std::vector<Index>>> best;  // (shared, sum, devices)
  for (std::size_t s = 0; s < failures_.size(); ++s) {
    const auto failed = [&](const Failure& failure) {
      return failure.devices == want.devices && want.pages >= failure.pages;
    };
    if (std::any_of(failures_[s].begin(), failures_[s].end(), failed)) {
      continue;
    }
    const ReplicaMap::Server& server = map_.servers()[s];
    std::vector<Index> roomy;
    bool held = false;
    for (Index device = server.first; device < server.first + server.count; ++device) {
      const MapDevice& known = map_.devices()[device];
      const bool fits = known.prewarmable && known.free_pages >= want.pages;
      const bool holds = fits && map_.holds(std::span(&device, 1), want.model);
      held |= holds;
      if (fits && !holds) {
        roomy.push_back(device);
      }
    }
    bool found = false;
    std::vector<std::size_t> chosen(needed);
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
    std::size_t tries = roomy.size() >= needed ? kSubsets : 0;
    for (bool more = tries > 0; more && tries-- > 0;
         more = next_combination(chosen, roomy.size())) {
      std::vector<Index> group;
      for (const std::size_t position : chosen) {
        group.push_back(roomy[position]);
      }
      const GroupLook look = map_.look(group);
      if (look.laminar) {
        found = true;
        std::tuple candidate(
            !worth_less(look.highest, want.worth), look.score_sum, std::move(group));
        best = best ? std::min(*best, candidate) : candidate;
      }
    }
    if (!found && !held) {
      failures_[s].push_back({.devices = want.devices, .pages = want.pages});
    }
  }
  if (!best) {
    return std::nullopt;
  }
  return FoundGroup{.devices = std::get<2>(*best), .isolated = !std::get<0>(*best)};
}

std::optional<FoundGroup> GroupIndex::find_among(const GroupWant& want) const {
  std::optional<std::tuple<bool, double, std::vector<Index>>> best;  // (shared, sum, devices)
  for (const std::vector<Index>& group : want.blocks) {
    const bool usable = std::all_of(group.begin(), group.end(), [&](Index device) {
      return map_.devices()[device].prewarmable;
    });
    const GroupLook look = map_.look(group);
    // Where something is in use, evicting elsewhere may be better.
    if (!usable || !look.laminar || look.free_pages < want.pages ||
        (want.alone && look.in_use && victims_ > 0) || map_.holds(group, want.model)) {
      continue;
    }
    std::tuple candidate(!worth_less(look.highest, want.worth), look.score_sum, group);
    best = best ? std::min(*best, candidate) : candidate;
  }
  if (!best) {
    return std::nullopt;
  }
  return FoundGroup{.devices = std::get<2>(*best), .isolated = !std::get<0>(*best)};
}

std::optional<FoundGroup> GroupIndex::find(const GroupWant& want) {
  if (!want.blocks.empty()) {
    return find_among(want);
  }
  Level* level = level_of(want.devices);
  if (level != nullptr) {
    if (auto found = find_block(*level, want)) {
      return found;
    }
  }
  return want.devices > 1 ? find_subset(want) : std::nullopt;
}

std::optional<std::pair<LostWorth, std::vector<ReplicaId>>> GroupIndex::victims_for(
    std::span<const Index> group, const GroupWant& want) const {
  if (map_.holds(group, want.model)) {
    return std::nullopt;
  }
  Shortage shortage(map_, group, want.pages);
  std::vector<const ReplicaMap::Entry*> candidates;
  std::vector<const ReplicaMap::Entry*> chosen;  // Those that lie across come first and stay.
  for (const ReplicaId id : map_.touching(group)) {
    const ReplicaMap::Entry& entry = map_.entry(id);
    const std::size_t shared = ReplicaMap::overlap(entry.devices, group).count;
    const bool across = shared != group.size() && shared != entry.devices.size();
    if (entry.evictable() && entry.replica.worth < want.worth) {
      (across ? chosen : candidates).push_back(&entry);
    } else if (across) {
      return std::nullopt;
    }
  }
  const std::size_t across_count = chosen.size();
  for (const ReplicaMap::Entry* entry : chosen) {
    shortage.evict(*entry);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
    return std::tie(a->replica.worth, b->replica.pages, a->replica.id) <
           std::tie(b->replica.worth, a->replica.pages, b->replica.id);
  });
  for (const ReplicaMap::Entry* entry : candidates) {
    if (shortage.where(*entry)) {
      shortage.evict(*entry);
      chosen.push_back(entry);
    }
  }
  if (shortage.anywhere()) {
    return std::nullopt;
  }
  for (std::size_t i = chosen.size(); i-- > across_count;) {  // Spare those that were not needed.
    shortage.keep(*chosen[i]);
    if (shortage.anywhere()) {
      shortage.evict(*chosen[i]);
    } else {
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  LostWorth lost;
  std::vector<ReplicaId> ids;
  for (const ReplicaMap::Entry* entry : chosen) {
    lost.add(entry->replica.worth);
    ids.push_back(entry->replica.id);
  }
  LostWorth gained;
  gained.add(want.worth);
  return lost < gained ? std::optional(std::pair(lost, std::move(ids))) : std::nullopt;
}

/// nullopt: it cannot have room for what is lost there. Where about as little is lost, the replica
/// goes beside what is worth least.
std::optional<GroupIndex::WeighedGroup> GroupIndex::weigh(std::span<const Index> group,
                                                          const GroupWant& want) const {
  auto victims = victims_for(group, want);
  if (!victims) {
    return std::nullopt;
  }
  const GroupLook look = map_.look(group);
  double beside = look.score_sum;
  for (const ReplicaId victim : victims->second) {
    beside -= map_.entry(victim).replica.worth.score;
  }
  const bool waits = want.alone && look.in_use;
  return WeighedGroup{.cost = {steps(victims->first, want), waits, beside, victims->first},
                      .found = {.devices = {group.begin(), group.end()},
                                .isolated = worth_less(look.highest, want.worth),
                                .victims = std::move(victims->second)}};
}

std::optional<FoundGroup> GroupIndex::find_among_by_evicting(const GroupWant& want) const {
  std::optional<WeighedGroup> best;
  for (const std::vector<Index>& group : want.blocks) {
    const bool usable = std::all_of(group.begin(), group.end(), [&](Index device) {
      return map_.devices()[device].prewarmable;
    });
    auto weighed = usable ? weigh(group, want) : std::nullopt;
    if (weighed && (!best || weighed->cost < best->cost)) {
      best = std::move(weighed);
    }
  }
  return best ? std::optional(std::move(best->found)) : std::nullopt;
}

std::optional<FoundGroup> GroupIndex::find_by_evicting(const GroupWant& want) {
  if (!want.blocks.empty()) {
    return find_among_by_evicting(want);
  }
  Level* level = level_of(want.devices);
  const auto known_exhausted = [&](const Failure& failure) {
    return failure.devices == want.devices && want.pages >= failure.pages;
  };
  if (level == nullptr || std::any_of(exhausted_.begin(), exhausted_.end(), known_exhausted)) {
    return std::nullopt;
  }
  std::optional<WeighedGroup> best;
  std::int64_t weighed = 0;
  std::int64_t walked = 0;
  bool held = false;
  for (const auto& [cheapest, block] : level->by_cheapest) {
    LostWorth least;
    least.add(cheapest);
    if (cheapest >= want.worth || (best && steps(least, want) > std::get<0>(best->cost)) ||
        weighed >= victims_ || walked++ >= victims_ * kWalk) {
      break;
    }
    const auto group = devices_of(*level, block);
    if (map_.holds(group, want.model)) {
      held = true;
      continue;
    }
    ++weighed;
    auto found = weigh(group, want);
    if (found && (!best || found->cost < best->cost)) {
      best = std::move(found);
    }
  }
  if (!best) {
    if (!held) {
      exhausted_.push_back({.devices = want.devices, .pages = want.pages});
    }
    return std::nullopt;
  }
  exhausted_.clear();  // Evicting frees room elsewhere, too.
  return std::move(best->found);
}

}  // namespace heddle::policy
