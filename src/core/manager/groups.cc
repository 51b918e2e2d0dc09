#include "core/manager/groups.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "core/manager/models.h"

namespace heddle::core::manager {

const Instance* leading(const State& state, const DeviceState& device, ModelId model) {
  const Instance& instance = device.instances.at(model);
  if (!instance.part().leader || instance.staged()) {
    return &instance;
  }
  const auto& there = state.devices.at(*instance.part().leader).instances;
  const auto found = there.find(whole(state, model));
  return found == there.end() ? nullptr : &found->second;
}

const Instance* staged(const DeviceState& device, ModelId model) {
  const auto found = device.instances.find(model);
  const bool waits =
      found != device.instances.end() && found->second.staged() && !found->second.is<Evicting>();
  return waits ? &found->second : nullptr;
}

bool of_group(const Instance& shard, DeviceId device, DeviceId leader) {
  return shard.staged() || shard.part().leader.value_or(device) == leader;
}

bool dedicated(const State& state, const DeviceState& device) {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    return state.models.at(entry.first).grouped() && !entry.second.staged();
  });
}

bool has_to_itself(const State& state, const DeviceState& device) {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    const ModelState& model = state.models.at(entry.first);
    return model.grouped() && !model.config.shares && !entry.second.staged();
  });
}

bool held(const State& state, const DeviceState& device) {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    const ModelState& model = state.models.at(entry.first);
    if (!model.grouped() || model.config.shares || entry.second.staged()) {
      return false;
    }
    const Instance* leader = leading(state, device, entry.first);
    return leader == nullptr || !leader->is<Serving>() || !leader->in_flight.empty() ||
           !state.models.at(asked(state, entry.first)).waiting.empty();
  });
}

bool runs_group(const State& state, const DeviceState& device) {
  return std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
    const auto& [id, instance] = entry;
    const Instance* leader = in_group(state, id, instance) ? leading(state, device, id) : nullptr;
    return leader != nullptr &&
           (!leader->in_flight.empty() || !state.models.at(asked(state, id)).waiting.empty());
  });
}

bool too_slow_beside(const State& state, const DeviceState& device, ModelId here, ModelId wanted) {
  const Instance* leader = leading(state, device, here);
  const DeviceId first = device.instances.at(here).part().leader.value_or(device.config.id);
  const policy::Footprint* own = state.models.at(here).need_on(device);
  const policy::Footprint* other = state.models.at(wanted).need_on(device);
  const ModelState& model = state.models.at(asked(state, here));
  if (leader == nullptr || own == nullptr || other == nullptr || own->image_pages == 0 ||
      (leader->in_flight.empty() && model.waiting.empty())) {
    return false;
  }
  const double longer =
      1 + static_cast<double>(other->image_pages) / static_cast<double>(own->image_pages);
  const auto step = Duration(static_cast<Duration::rep>(
      longer * static_cast<double>(state.devices.at(first).step.count())));
  return step >
         std::min(model.objectives().tpot, state.models.at(asked(state, wanted)).objectives().tpot);
}

std::optional<DeviceId> leader_for(const State& state, DeviceId device, ModelId shard) {
  const ModelId all = whole(state, shard);
  std::optional<DeviceId> leads;
  for (const auto& [leader, places] : state.models.at(all).config.groups) {
    const bool has = std::ranges::any_of(places, [&](const ShardPlace& place) {
      return place.device == device && place.model == shard;
    });
    if (has || (shard == all && leader == device)) {
      leads = leader;
    }
  }
  return leads;
}

bool run_beside(const State& state, const DeviceState& device, ModelId shard, ModelId other) {
  const std::optional<DeviceId> leader = leader_for(state, device.config.id, shard);
  const auto shares = [&](ModelId id) {
    return state.models.at(id).config.shares && !of_cut(state, id);
  };
  return leader && shares(shard) && shares(other) &&
         leader == leader_for(state, device.config.id, other);
}

bool may_step_back(const State& state, const DeviceState& device, ModelId shard) {
  const Instance& here = device.instances.at(shard);
  const ModelState& model = state.models.at(whole(state, shard));
  const Instance* leader = leading(state, device, shard);
  return in_group(state, shard, here) && model.config.shares && leader != nullptr &&
         (leader->runs() || leader->is<SteppingBack>()) && model.unloads_asked.empty() &&
         !model.removed;
}

std::vector<ModelId> idle_shares(const State& state, const DeviceState& device) {
  std::vector<ModelId> idle;
  for (const auto& [id, instance] : device.instances) {
    const ModelId all = whole(state, id);
    const ModelState& model = state.models.at(all);
    const Instance* leader = leading(state, device, id);
    if (instance.kv_pages > 0 && may_step_back(state, device, id) && leader->is<Serving>() &&
        leader->in_flight.empty() && state.models.at(asked(state, id)).waiting.empty() &&
        state.now >= leader->serving_since + model.config.min_residence) {
      idle.push_back(id);
    }
  }
  return idle;
}

bool steps_back(const State& state, const DeviceState& device) {
  return std::ranges::any_of(device.instances, [&](const auto& entry) {
    const Instance* leader =
        in_group(state, entry.first, entry.second) ? leading(state, device, entry.first) : nullptr;
    return leader != nullptr && leader->is<SteppingBack>();
  });
}

bool is_to_leave(const State& state, const DeviceState& device, ModelId model) {
  const std::vector<ShardPlace> places = block(state, model, device.config.id);
  return std::any_of(places.begin(), places.end(), [&](const ShardPlace& place) {
    const DeviceState& there = state.devices.at(place.device);
    return there.claimed ||
           (there.plan &&
            std::count(there.plan->victims.begin(), there.plan->victims.end(), place.model) > 0);
  });
}

bool somewhere(const State& state, ModelId id) {
  const auto on_a_device = [&](ModelId each) {
    const auto found = state.models.find(each);
    return found != state.models.end() && !found->second.spots.empty();
  };
  const ModelState& model = state.models.at(id);
  return on_a_device(id) || (model.sharded() && std::ranges::any_of(shards_of(model), on_a_device));
}

Gathered gathered(const State& state, ModelId model, DeviceId leader) {
  Gathered all;
  for (const ShardPlace& place : block(state, model, leader)) {
    const DeviceState& device = state.devices.at(place.device);
    const auto found = device.instances.find(place.model);
    const bool there = found != device.instances.end() && !found->second.is<Evicting>() &&
                       of_group(found->second, place.device, leader);
    ++all.shards;
    all.there += there ? 1 : 0;
    all.complete += there && found->second.complete ? 1 : 0;
  }
  return all;
}

bool left_over(const State& state, const DeviceState& device, ModelId model) {
  const Instance* shard = staged(device, model);
  return shard != nullptr && shard->is<Member>() &&
         !gathered(state, whole(state, model), shard->part().leader.value_or(device.config.id))
              .whole();
}

Beside beside(const State& state, ModelId model, DeviceId leader) {
  Beside most = Beside::kNobody;
  if (of_cut(state, model)) {
    return most;
  }
  for (const ShardPlace& place : block(state, model, leader)) {
    for (const auto& [id, instance] : state.devices.at(place.device).instances) {
      const bool alone = !state.models.at(model).config.shares || state.models.at(id).external() ||
                         (in_group(state, id, instance) &&
                          !run_beside(state, state.devices.at(place.device), place.model, id));
      if (alone && id != place.model && !instance.is<Suspended>()) {
        most = std::max(most, instance.is<Evicting>() ? Beside::kLeaving : Beside::kStaying);
      }
    }
  }
  return most;
}

StartKind start_kind(const State& state, ModelId model, const DeviceState& device) {
  if (!state.models.at(model).config.groups.contains(device.config.id)) {
    return StartKind::kMiss;
  }
  const auto found = device.instances.find(model);
  if (found != device.instances.end() && !found->second.staged()) {
    const Instance& leader = found->second;
    const bool expected = leader.why == LoadReason::kForecast && !leader.used;
    return leader.is<Serving>()   ? expected ? StartKind::kHit : StartKind::kWarm
           : leader.is<Loading>() ? StartKind::kAttach
                                  : StartKind::kMiss;
  }
  const std::vector<ShardPlace> places = block(state, model, device.config.id);
  const bool any = std::any_of(places.begin(), places.end(), [&](const ShardPlace& place) {
    return staged(state.devices.at(place.device), place.model) != nullptr;
  });
  const Gathered there = gathered(state, model, device.config.id);
  return there.complete == there.shards ? StartKind::kHit
         : any                          ? StartKind::kAttach
                                        : StartKind::kMiss;
}

TellWorker fit_share(const State& state, ModelId model, DeviceId leader, bool idle) {
  return {.device = leader,
          .epoch = state.devices.at(leader).epoch,
          .message = FitShare{.model = model, .idle = idle}};
}

void check_groups(const State& state) {
  for (const auto& [id, device] : state.devices) {
    HEDDLE_CHECK(!device.claimed || state.models.at(*device.claimed).claim);
    for (const auto& [model, instance] : device.instances) {
      if (!state.models.at(model).grouped() || instance.is<Evicting>()) {
        continue;
      }
      HEDDLE_CHECK(!instance.staged() || (instance.in_flight.empty() && !instance.part().forming));
      if (instance.staged()) {
        continue;
      }
      const Instance* leader = leading(state, device, model);
      if (leader == nullptr && !state.settled) {
        continue;  // It has died: the others go as soon as anything is decided.
      }
      HEDDLE_CHECK(leader != nullptr);
      HEDDLE_CHECK(leader == &instance || !leader->is<Loading>() || instance.is<Loading>());
      // While it is loaded, the eviction of another may have been refused, and its load then is.
      for (const auto& [other, beside] : device.instances) {
        const bool leaves = beside.is<Evicting>();
        const bool absent = beside.is<Suspended>() && beside.kv_pages == 0;
        // A manager before this one ordered it in, and this one out, of which nothing is known yet.
        const bool adopted = device.found && beside.is<Loading>();
        const bool shares =
            state.models.at(model).config.shares && !state.models.at(other).external() &&
            (!in_group(state, other, beside) || run_beside(state, device, model, other));
        HEDDLE_CHECK(other == model || leaves || absent || adopted || shares ||
                     of_cut(state, model) || (!instance.runs() && !instance.is<Member>()));
      }
      if (!instance.runs()) {
        continue;
      }
      for (const ShardPlace& place : block(state, model, id)) {
        const auto& there = state.devices.at(place.device).instances;
        const auto member = there.find(place.model);
        HEDDLE_CHECK(place.model == model ||
                     (member == there.end() ? !state.settled : member->second.is<Member>()));
      }
    }
  }
}

}  // namespace heddle::core::manager
