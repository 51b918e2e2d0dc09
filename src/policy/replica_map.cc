#include "policy/replica_map.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace heddle::policy {

ReplicaMap::ReplicaMap(std::vector<MapDevice> devices)
    : devices_(std::move(devices)), on_device_(devices_.size()) {
  std::sort(devices_.begin(), devices_.end(), [](const MapDevice& a, const MapDevice& b) {
    return std::tie(a.server, a.id) < std::tie(b.server, b.id);
  });
  for (Index i = 0; i < devices_.size(); ++i) {
    if (i == 0 || devices_[i].server != devices_[i - 1].server) {
      servers_.push_back({.first = i, .count = 0});
    }
    ++servers_.back().count;
    server_of_.push_back(static_cast<Index>(servers_.size() - 1));
    indices_.emplace_back(devices_[i].id, i);
  }
  std::sort(indices_.begin(), indices_.end());
}

ReplicaMap::Slot ReplicaMap::insert(PlacedReplica replica) {
  HEDDLE_CHECK(!replica.devices.empty() && replica.pages >= 0);
  HEDDLE_CHECK(!slots_.contains(replica.id));
  Entry entry{.replica = std::move(replica)};
  for (const DeviceId device : entry.replica.devices) {
    entry.devices.push_back(index_of(device));
  }
  std::sort(entry.devices.begin(), entry.devices.end());
  HEDDLE_CHECK(server_of_[entry.devices.front()] == server_of_[entry.devices.back()]);
  Slot slot = static_cast<Slot>(entries_.size());
  if (vacant_.empty()) {
    entries_.emplace_back();
  } else {
    slot = vacant_.back();
    vacant_.pop_back();
  }
  const ReplicaId id = entry.replica.id;
  std::vector<ReplicaId>& siblings = by_model_[entry.replica.model];
  siblings.insert(std::lower_bound(siblings.begin(), siblings.end(), id), id);
  for (const Index device : entry.devices) {
    std::vector<Slot>& there = on_device_[device];
    const auto after = std::find_if(
        there.begin(), there.end(), [&](Slot s) { return entries_[s].replica.id > id; });
    there.insert(after, slot);
  }
  slots_.emplace(id, slot);
  entries_[slot] = std::move(entry);
  return slot;
}

void ReplicaMap::change_free_pages(const Entry& entry, std::int64_t by) {
  for (const Index device : entry.devices) {
    devices_[device].free_pages += by;
    HEDDLE_CHECK(devices_[device].free_pages >= 0);
  }
}

void ReplicaMap::add(PlacedReplica replica) {
  insert(std::move(replica));
}

void ReplicaMap::place(PlacedReplica replica) {
  const Entry& entry = entries_[insert(std::move(replica))];
  change_free_pages(entry, -entry.replica.pages);
}

void ReplicaMap::remove(ReplicaId id) {
  const auto found = slots_.find(id);
  HEDDLE_CHECK(found != slots_.end());
  const Slot slot = found->second;
  const Entry& entry = entries_[slot];
  change_free_pages(entry, entry.replica.pages);
  for (const Index device : entry.devices) {
    std::erase(on_device_[device], slot);
  }
  const auto siblings = by_model_.find(entry.replica.model);
  std::erase(siblings->second, id);
  if (siblings->second.empty()) {
    by_model_.erase(siblings);
  }
  slots_.erase(found);
  entries_[slot] = {};
  vacant_.push_back(slot);
}

void ReplicaMap::set_worth(ReplicaId id, ReplicaWorth worth) {
  const auto found = slots_.find(id);
  HEDDLE_CHECK(found != slots_.end());
  entries_[found->second].replica.worth = worth;
}

void ReplicaMap::set_state(ReplicaId id, ReplicaState state) {
  const auto found = slots_.find(id);
  HEDDLE_CHECK(found != slots_.end());
  entries_[found->second].replica.state = state;
}

void ReplicaMap::set_device(const MapDevice& device) {
  MapDevice& known = devices_[index_of(device.id)];
  HEDDLE_CHECK(known.server == device.server);
  known = device;
}

const ReplicaMap::Server& ReplicaMap::server_of(Index device) const {
  return servers_[server_of_[device]];
}

ReplicaMap::Index ReplicaMap::index_of(DeviceId id) const {
  const auto found =
      std::lower_bound(indices_.begin(), indices_.end(), std::pair<DeviceId, Index>(id, 0));
  HEDDLE_CHECK(found != indices_.end() && found->first == id);
  return found->second;
}

std::vector<ReplicaId> ReplicaMap::replicas() const {
  std::vector<ReplicaId> ids;
  ids.reserve(slots_.size());
  for (const auto& [id, slot] : slots_) {
    ids.push_back(id);
  }
  return ids;
}

const ReplicaMap::Entry& ReplicaMap::entry(ReplicaId id) const {
  const auto found = slots_.find(id);
  HEDDLE_CHECK(found != slots_.end());
  return entries_[found->second];
}

std::vector<ReplicaId> ReplicaMap::of_model(ModelId model) const {
  const auto found = by_model_.find(model);
  return found == by_model_.end() ? std::vector<ReplicaId>{} : found->second;
}

ReplicaMap::Overlap ReplicaMap::overlap(std::span<const Index> a, std::span<const Index> b) {
  Overlap result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] < b[j]) {
      ++i;
    } else if (b[j] < a[i]) {
      ++j;
    } else {
      if (result.count++ == 0) {
        result.first = a[i];
      }
      ++i;
      ++j;
    }
  }
  return result;
}

GroupLook ReplicaMap::look(std::span<const Index> group) const {
  HEDDLE_CHECK(!group.empty());
  GroupLook look{.free_pages = devices_[group.front()].free_pages};
  for (const Index device : group) {
    look.free_pages = std::min(look.free_pages, devices_[device].free_pages);
    for (const Slot slot : on_device_[device]) {
      const Entry& entry = entries_[slot];
      const Overlap shared = overlap(entry.devices, group);
      if (shared.first != device) {
        continue;  // Seen on an earlier device.
      }
      look.laminar &= shared.count == group.size() || shared.count == entry.devices.size();
      ++look.replicas;
      const ReplicaWorth& worth = entry.replica.worth;
      look.score_sum += worth.score;
      look.in_use |= entry.replica.in_use;
      if (!look.highest || *look.highest < worth) {
        look.highest = worth;
      }
      if (entry.evictable() && (!look.cheapest || worth < *look.cheapest)) {
        look.cheapest = worth;
      }
    }
  }
  return look;
}

bool ReplicaMap::holds(std::span<const Index> group, ModelId model) const {
  return std::any_of(group.begin(), group.end(), [&](Index device) {
    return std::any_of(on_device_[device].begin(), on_device_[device].end(), [&](Slot slot) {
      return entries_[slot].replica.model == model;
    });
  });
}

std::vector<ReplicaId> ReplicaMap::touching(std::span<const Index> group) const {
  std::vector<ReplicaId> ids;
  for (const Index device : group) {
    for (const Slot slot : on_device_[device]) {
      ids.push_back(entries_[slot].replica.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace heddle::policy
