#include "core/manager/images.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/units.h"
#include "core/manager/models.h"
#include "core/manager/value.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// What nobody waits for has time.
constexpr Duration kUnhurried = 1h;
/// Hosts that one fetch comes from.
constexpr std::size_t kPeersMost = 2;

/// Until the image is in the host's memory: from there, from its disk, or over its network.
Duration image_time(const State& state, ModelId id, HostId host) {
  const ModelState& model = state.models.at(id);
  if (model.cached_at(host)) {
    return {};
  }
  return std::max(read_time(model), fetch_time(state, id, host));
}

/// Whether the host of this device has all files of the model, of all of its shards.
bool has_files(const State& state, ModelId id, DeviceId device) {
  const ModelState& model = state.models.at(id);
  if (model.removed || !model.footprints.contains(device)) {
    return false;
  }
  const HostId host = host_of(device);
  return to_fetch(model, host) == 0 && std::ranges::all_of(shards_of(model), [&](ModelId shard) {
           return to_fetch(state.models.at(shard), host) == 0;
         });
}

/// ", from the caches of h2 and h3".
std::string describe_peers(const State& state, const std::vector<HostId>& peers) {
  std::string text;
  for (const HostId peer : peers) {
    const auto device = std::ranges::find_if(
        state.devices, [&](const auto& entry) { return host_of(entry.first) == peer; });
    const std::string& name = device->second.config.name;
    text += (text.empty() ? ", from the caches of " : " and ") + name.substr(0, name.find('/'));
  }
  return text;
}

}  // namespace

std::uint64_t to_fetch(const ModelState& model, HostId host) {
  const auto found = model.config.fetched.find(host);
  const bool there = model.cached_at(host) || model.fetched_at.contains(host);
  return found == model.config.fetched.end() || there ? 0 : found->second;
}

policy::Fetch fetch_of(const State& state, ModelId id, HostId host) {
  const ModelState& model = state.models.at(id);
  return {.id = policy::FetchId(id.value()),
          .bytes = static_cast<std::int64_t>(to_fetch(model, host)),
          .deadline = first_due(state, id).value_or(state.now + kUnhurried)};
}

Duration due_in(const State& state, ModelId id) {
  const std::optional<Instant> due = first_due(state, id);
  return due ? std::max(*due - state.now, Duration{1}) : Duration{};
}

Duration fetch_time(const State& state, ModelId id, HostId host) {
  const std::uint64_t bytes = to_fetch(state.models.at(id), host);
  if (bytes == 0) {
    return {};
  }
  const auto network = state.networks.find(host);
  const double rate = network == state.networks.end()
                          ? static_cast<double>(kNetworkRate)
                          : network->second.bandwidth_for(fetch_of(state, id, host));
  return from_seconds(static_cast<double>(bytes) / rate);
}

Duration read_time(const ModelState& model) {
  const auto& [from_disk, from_memory] = model.load_times;
  return from_disk > Duration{}
             ? std::max<Duration>(from_disk - from_memory, Duration{})
             : from_seconds(static_cast<double>(model.config.image_bytes) / kLoadRate);
}

bool admits_fetch(const State& state, ModelId id, HostId host) {
  const auto network = state.networks.find(host);
  if (network == state.networks.end() || to_fetch(state.models.at(id), host) == 0) {
    return true;
  }
  if (!network->second.fetches().empty()) {
    return network->second.admits(fetch_of(state, id, host));
  }
  policy::Nic idle = network->second;  // As it was when it last fetched something.
  idle.advance(state.now);
  return idle.admits(fetch_of(state, id, host));
}

void weigh_hosts(const State& state, ModelId id, std::vector<policy::PlacementDevice>& places) {
  HostWeights hosts;
  for (const policy::PlacementDevice& place : places) {
    hosts.add(state, id, host_of(place.id));
  }
  for (policy::PlacementDevice& place : places) {
    hosts.weigh(place);
  }
}

void HostWeights::add(const State& state, ModelId model, HostId host) {
  if (!hosts_.empty() && hosts_.back().host == host) {
    return;
  }
  hosts_.push_back({.host = host,
                    .time = image_time(state, model, host),
                    .admitted = admits_fetch(state, model, host)});
  first_ = std::min(first_, hosts_.back().time);
  any_admitted_ = any_admitted_ || hosts_.back().admitted;
}

HostId HostWeights::soonest() const {
  return std::ranges::find(hosts_, first_, &Host::time)->host;
}

void HostWeights::weigh(policy::PlacementDevice& place) const {
  if (hosts_.size() < 2) {
    return;
  }
  const auto at = std::ranges::lower_bound(hosts_, host_of(place.id), {}, &Host::host);
  place.missing = at->time - first_;
  place.available = place.available && (at->admitted || !any_admitted_);
}

std::vector<HostId> fetch_peers(const State& state, ModelId id, HostId host) {
  if (to_fetch(state.models.at(id), host) == 0) {
    return {};
  }
  std::map<HostId, std::size_t> busy;
  for (const auto& [device, there] : state.devices) {
    if (there.up && host_of(device) != host && has_files(state, asked(state, id), device)) {
      busy[host_of(device)] = 0;
    }
  }
  for (const auto& [device, there] : state.devices) {
    for (const auto& [model, instance] : there.instances) {
      for (const HostId peer : instance.peers) {
        const auto found = busy.find(peer);
        if (found != busy.end() && !instance.complete) {
          ++found->second;
        }
      }
    }
  }
  std::vector<HostId> peers;
  for (const auto& [peer, fetches] : busy) {
    peers.push_back(peer);
  }
  std::ranges::sort(peers, {}, [&](HostId peer) { return std::pair(busy.at(peer), peer); });
  peers.resize(std::min(peers.size(), kPeersMost));
  return peers;
}

std::string describe_fetch(const State& state, ModelId id, HostId host) {
  const std::uint64_t bytes = to_fetch(state.models.at(id), host);
  if (bytes == 0) {
    return {};
  }
  return "; fetches " + format_bytes(bytes) + ", " + format_duration(fetch_time(state, id, host)) +
         " by estimate" + describe_peers(state, fetch_peers(state, id, host)) +
         (admits_fetch(state, id, host) ? "" : ", which makes first tokens late wherever it goes");
}

}  // namespace heddle::core::manager
