#include "core/manager/models.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/units.h"
#include "policy/preemption.h"

namespace heddle::core::manager {
namespace {

/// A busy engine stays for at least so many times what bringing it in takes.
constexpr std::int64_t kResidenceSwaps = policy::PreemptionOptions{}.residence_swaps;

constexpr unsigned kModelBits = 32;

/// A burst may go on after so long in which its model bore it.
constexpr Duration kCalm = std::chrono::seconds(30);

}  // namespace

policy::ReplicaId replica_id(DeviceId device, ModelId model) {
  return policy::ReplicaId((device.value() << kModelBits) | model.value());
}

DeviceId device_of(policy::ReplicaId replica) {
  return DeviceId(replica.value() >> kModelBits);
}

ModelId model_of(policy::ReplicaId replica) {
  return ModelId(replica.value() & 0xffff'ffffU);
}

ModelId whole(const State& state, ModelId model) {
  return state.models.at(model).config.part_of.value_or(model);
}

ModelId asked(const State& state, ModelId model) {
  const ModelId all = whole(state, model);
  return state.models.at(all).config.cut_of.value_or(all);
}

bool of_cut(const State& state, ModelId model) {
  return asked(state, model) != whole(state, model);
}

bool in_group(const State& state, ModelId model, const Instance& instance) {
  return state.models.at(model).grouped() && !instance.staged() && !of_cut(state, model);
}

std::vector<ModelId> forms(const ModelState& model) {
  std::vector<ModelId> all{model.config.id};
  all.insert(all.end(), model.cuts.begin(), model.cuts.end());
  return all;
}

std::vector<ModelId> shards_of(const ModelState& model) {
  if (model.config.cut_of || model.config.groups.empty()) {
    return model.config.stages;
  }
  std::vector<ModelId> shards;
  for (const ShardPlace& place : model.config.groups.begin()->second) {
    shards.push_back(place.model);
  }
  return shards;
}

std::vector<ShardPlace> block(const State& state, ModelId model, DeviceId leader) {
  std::vector<ShardPlace> places{{.model = model, .device = leader}};
  const ModelState& known = state.models.at(model);
  if (const auto others = known.config.groups.find(leader); others != known.config.groups.end()) {
    places.insert(places.end(), others->second.begin(), others->second.end());
  }
  for (const DeviceId other : further_devices(known, leader)) {
    places.push_back({.model = model, .device = other});
  }
  return places;
}

std::span<const DeviceId> further_devices(const ModelState& model, DeviceId leader) {
  if (!model.external()) {
    return {};
  }
  const auto& further = model.config.external->further;
  const auto found = further.find(leader);
  return found == further.end() ? std::span<const DeviceId>() : std::span(found->second);
}

bool on_several(const ModelState& model) {
  return model.external() && !model.config.external->further.empty();
}

bool displaces(const ModelState& model, ModelId other) {
  return std::binary_search(model.config.displaces.begin(), model.config.displaces.end(), other);
}

bool was_short(const State& state, const ModelState& model) {
  return model.unborne_at && state.now - *model.unborne_at <= kCalm;
}

bool stays(const State& state, const ModelState& model) {
  return (model.config.pin && !model.removed) || !state.options.planner.evict;
}

std::int64_t longest_waiting(const State& state, const ModelState& model) {
  std::int64_t longest = 0;
  for (const auto& [key, request] : model.waiting) {
    longest = std::max(longest, state.requests.at(request).need);
  }
  return longest;
}

std::optional<Instant> first_due(const State& state, ModelId id) {
  std::optional<Instant> first;
  for (const auto& [key, request] : state.models.at(asked(state, id)).waiting) {
    const Instant due = state.requests.at(request).due;
    first = std::min(first.value_or(due), due);
  }
  return first;
}

std::int64_t engine_pages(const ModelState& model, DeviceId device) {
  const policy::Footprint* found = model.footprints.find(device);
  for (const auto& [leader, others] : model.config.external->further) {
    if (std::ranges::count(others, device) > 0) {
      found = model.footprints.find(leader);
    }
  }
  return engine_pages(model, found == nullptr ? policy::Footprint{} : *found);
}

std::int64_t engine_pages(const ModelState& model, const policy::Footprint& footprint) {
  return footprint.image_pages > 0 ? footprint.image_pages
                                   : std::max<std::int64_t>(model.learned_pages, 1);
}

Duration most_residence(const ModelState& model) {
  return std::max(model.config.min_residence, kResidenceSwaps * model.swap_in);
}

Duration residence(const ModelState& model, const Instance& instance) {
  const Duration most = most_residence(model);
  if (!instance.in_flight.empty()) {
    return most;
  }
  if (model.last_arrival <= instance.serving_since) {
    return {};
  }
  return std::min(most, model.last_used - instance.serving_since + model.swap_in / 2);
}

bool idle(const State& state, const Instance& instance) {
  return instance.in_flight.empty() && std::ranges::none_of(instance.owes, [&](const auto& owed) {
           return owed.second > state.now;
         });
}

std::string names(const State& state, const std::vector<ModelId>& models) {
  std::string text;
  for (std::size_t i = 0; i < models.size(); ++i) {
    text += i == 0 ? "" : i + 1 == models.size() ? " and " : ", ";
    text += state.models.at(models[i]).config.name;
  }
  return text;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 10 ? "%.2g" : "%.0f", value);
  return text.data();
}

std::string describe_first_token(Duration predicted) {
  return ", first token in " + format_duration(predicted) + " by estimate";
}

std::string who_waits(const ModelState& model) {
  const std::size_t waiting = model.waiting.size();
  return waiting == 0   ? "an operator wants it"
         : waiting == 1 ? "a request waits"
                        : std::to_string(waiting) + " requests wait";
}

std::string too_large(const State& state, const ModelState& model) {
  const std::string name = "model '" + model.config.name + "'";
  if (model.external() && !model.footprints.empty()) {
    const ManagerDevice& device = state.devices.at(model.footprints.first_device()).config;
    return name + " needs " + std::to_string(engine_pages(model, device.id)) + " pages of memory" +
           (on_several(model) ? " of each of its devices" : "") + "; its device, " + device.name +
           ", has " + std::to_string(device.pages);
  }
  const policy::Footprint* least = nullptr;
  for (const Seat& seat : model.footprints.seats()) {
    const policy::Footprint& footprint = model.footprints.shapes()[seat.shape];
    if (least == nullptr || policy::pages_to_load(footprint) < policy::pages_to_load(*least)) {
      least = &footprint;
    }
  }
  const ManagerDevice* largest = nullptr;
  for (const auto& [id, device] : state.devices) {
    if (largest == nullptr || device.config.pages > largest->pages) {
      largest = &device.config;
    }
  }
  if (least == nullptr || largest == nullptr) {
    return name + " has no device that may hold it";
  }
  return name + " needs " + policy::describe(*least) + " of memory; the largest device, " +
         largest->name + ", has " + std::to_string(largest->pages);
}

}  // namespace heddle::core::manager
