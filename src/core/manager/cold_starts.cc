#include "core/manager/cold_starts.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/cold_start.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// From one stage to the next, between hosts of one network.
constexpr Duration kHop = 1ms;
/// Makes stages that there are not too slow for any objective.
constexpr Duration kNever = 1h;

/// A device where nothing runs, and where all that would go is models of ours; nullopt for any
/// other.
std::optional<policy::StartDevice> free_device(const State& state, DeviceId id, ModelId model) {
  const DeviceState& device = state.devices.at(id);
  const policy::PlacementDevice seen = view(state, device, model);
  const bool in_use =
      std::ranges::any_of(seen.residents, [&](const policy::ResidentView& resident) {
        const ModelState& other = state.models.at(resident.model);
        return resident.queue > 0 || resident.pinned || resident.in_transition ||
               other.external() || other.grouped();
      });
  if (!seen.available || in_use || device.claimed || seen.reserved) {
    return std::nullopt;
  }
  const auto page_bytes = static_cast<std::int64_t>(device.config.page_bytes);
  std::int64_t pages = 0;
  double worth = 0;
  for (const policy::ResidentView& resident : seen.residents) {
    pages += resident.pages;
    worth += resident.worth;
  }
  const std::int64_t revocable = std::min(pages, seen.pages - seen.free_pages) * page_bytes;
  return policy::StartDevice{.id = id,
                             .host = host_of(id),
                             .free_bytes = seen.free_pages * page_bytes,
                             .revocable_bytes = revocable,
                             .value = revocable > 0 ? worth / static_cast<double>(revocable) : 0,
                             .shared = !seen.residents.empty()};
}

/// What of a model's memory on the device is not weights [bytes].
std::int64_t beside_weights(const State& state, const ModelState& model) {
  const policy::Footprint& footprint = model.footprints.first();
  const DeviceId id = model.footprints.first_device();
  return (policy::pages_to_load(footprint) - footprint.image_pages) *
         static_cast<std::int64_t>(state.devices.at(id).config.page_bytes);
}

/// The cut into so many stages, if it may be tried; null if not.
const ModelState* cut_into(const State& state, const ModelState& model, std::size_t stages) {
  for (const ModelId id : model.cuts) {
    const ModelState& cut = state.models.at(id);
    if (cut.config.stages.size() + 1 == stages) {
      return cut.removed || state.now < cut.retry_at || somewhere(state, id) ? nullptr : &cut;
    }
  }
  return nullptr;
}

policy::StartModel start_model(const State& state, const ModelState& model) {
  policy::StartModel start{.bytes = static_cast<std::int64_t>(model.config.image_bytes)};
  start.times.hop = kHop;
  start.times.prefill = model.warm.ttft().value_or(Duration{});
  start.times.decode = model.warm.tpot();
  for (std::size_t s = 2; s < start.times.group.size(); ++s) {
    start.times.group.at(s) = cut_into(state, model, s) == nullptr ? kNever : Duration{};
  }
  return start;
}

/// The first token that waits is due then.
Duration time_left(const State& state, const ModelState& model) {
  const std::optional<Instant> due = first_due(state, model.config.id);
  return std::max(*due - state.now, Duration(1));
}

/// The hosts of these devices, ascending, with their networks, which `networks` holds.
std::vector<policy::StartHost> hosts_of(const State& state,
                                        const std::vector<policy::StartDevice>& devices,
                                        std::map<HostId, policy::Nic>& networks) {
  std::map<HostId, double> rates;
  for (const policy::StartDevice& device : devices) {
    const double measured = state.devices.at(device.id).load_rate;
    rates[device.host] = std::max(rates[device.host], measured > 0 ? measured : kLoadRate);
  }
  std::vector<policy::StartHost> hosts;
  for (const auto& [host, rate] : rates) {
    const auto known = state.networks.find(host);
    policy::Nic network = known == state.networks.end()
                              ? policy::Nic(kNetworkRate, policy::NicRule::kEarliestDeadline)
                              : known->second;
    network.advance(state.now);
    networks.emplace(host, std::move(network));
    hosts.push_back({.id = host, .nic = &networks.at(host), .pcie = rate});
  }
  return hosts;
}

/// Who goes for the stage there; nullopt where it has no room at once, or none for the longest
/// request that waits.
std::optional<CutStart::Place> place_of(const State& state,
                                        ModelId stage,
                                        DeviceId device,
                                        std::int64_t longest) {
  if (tokens_alone(state, stage, device) < std::max<std::int64_t>(longest, 1)) {
    return std::nullopt;
  }
  const policy::PlacementDevice there = view(state, state.devices.at(device), stage);
  policy::Placement placement =
      policy::choose_placement({&there, 1}, state.now, state.now, {.drain_after = kNever});
  if (placement.outcome != policy::PlacementOutcome::kLoad) {
    return std::nullopt;
  }
  return CutStart::Place{.stage = {.model = stage, .device = device},
                         .victims = std::move(placement.victims)};
}

/// The stages of the plan as places of the cut; nullopt where one cannot be there.
std::optional<CutStart> places_of(const State& state,
                                  const ModelState& model,
                                  const policy::StartPlan& plan) {
  const ModelState* cut = cut_into(state, model, plan.stages.size());
  if (cut == nullptr) {
    return std::nullopt;
  }
  const std::int64_t longest = longest_waiting(state, model);
  CutStart start{.ttft = plan.ttft, .tpot = plan.tpot, .lost = plan.lost_value};
  std::string names;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const ModelId stage = i == 0 ? cut->config.id : cut->config.stages.at(i - 1);
    const DeviceId device = plan.stages[i].device;
    auto place = place_of(state, stage, device, longest);
    if (!place) {
      return std::nullopt;
    }
    start.places.push_back(std::move(*place));
    names += (i == 0 ? "" : ", ") + state.devices.at(device).config.name;
  }
  start.because = who_waits(model) + "; in " + std::to_string(plan.stages.size()) + " stages on " +
                  names + ", each of which fetches its layers: a first token in " +
                  format_duration(plan.ttft) + " by estimate, " +
                  std::string(policy::reason_name(plan.reason));
  return start;
}

}  // namespace

CutChoice look_at_cuts(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  if (model.cuts.empty() || model.waiting.empty() || model.footprints.empty()) {
    return {};
  }
  std::vector<policy::StartDevice> devices;
  for (const auto& [device, shape] : model.footprints.seats()) {
    const DeviceState& there = state.devices.at(device);
    if (there.up && !there.leaving && to_fetch(model, host_of(device)) == 0) {
      return {.why_not = "a host has its files"};
    }
    if (const auto free = free_device(state, device, id)) {
      devices.push_back(*free);
    }
  }
  std::map<HostId, policy::Nic> networks;
  const std::vector<policy::StartHost> hosts = hosts_of(state, devices, networks);
  if (hosts.size() < 2) {
    return {.why_not = "fewer than two hosts are free"};  // On one they share its network.
  }
  const policy::StartModel start = start_model(state, model);
  const policy::StartView view{.now = state.now,
                               .ttft_left = time_left(state, model),
                               .tpot = model.objectives().tpot,
                               .hosts = hosts,
                               .devices = devices};
  policy::StartOptions options{.own_devices = true,
                               .best_effort = policy::BestEffort::kSoonest,
                               .kv_share = beside_weights(state, model),
                               .fill_below = 0};
  const auto plan = policy::choose_cold_start(start, view, options);
  if (plan && plan->stages.size() > 1) {
    CutChoice choice{.start = places_of(state, model, *plan), .ttft = plan->ttft};
    choice.why_not = choice.start ? "" : "a stage has no room";
    return choice;
  }
  options.fewest_stages = 2;
  const auto group = policy::choose_cold_start(start, view, options);
  return {.why_not = "no better than one device",
          .ttft = group ? std::optional(group->ttft) : std::nullopt};
}

std::optional<CutStart> choose_cut_start(const State& state, ModelId id) {
  return look_at_cuts(state, id).start;
}

}  // namespace heddle::core::manager
