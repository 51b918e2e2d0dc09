#include "manager/hosts.h"

#include <algorithm>
#include <utility>

#include "ledger/pool_sum.h"

namespace heddle::manager {
namespace {

/// Hosts that may be asked for one model, one after the other.
constexpr std::size_t kHoldersMost = 8;

}  // namespace

void Hosts::add(HostId id, host::HostPort& port, host::HostFacts facts) {
  Entry& entry = hosts_[id];
  entry.port = &port;
  if (!facts.name.empty()) {
    for (core::ManagerDevice& device : facts.devices) {
      device.name = facts.name + "/" + device.name;
    }
  }
  entry.facts = std::move(facts);
}

bool Hosts::remove(HostId id) {
  return hosts_.erase(id) > 0;
}

void Hosts::offered(HostId id, std::vector<host::Offer> offers) {
  const auto found = hosts_.find(id);
  if (found != hosts_.end()) {
    found->second.offers = std::move(offers);
  }
}

host::HostPort* Hosts::port(HostId id) const {
  const auto found = hosts_.find(id);
  return found == hosts_.end() ? nullptr : found->second.port;
}

std::vector<HostId> Hosts::ids() const {
  std::vector<HostId> all;
  for (const auto& [id, entry] : hosts_) {
    all.push_back(id);
  }
  return all;
}

std::vector<core::ManagerDevice> Hosts::devices() const {
  std::vector<core::ManagerDevice> all;
  for (const auto& [id, entry] : hosts_) {
    all.insert(all.end(), entry.facts.devices.begin(), entry.facts.devices.end());
  }
  return all;
}

std::map<HostId, host::HostFacts> Hosts::facts() const {
  std::map<HostId, host::HostFacts> all;
  for (const auto& [id, entry] : hosts_) {
    all[id] = entry.facts;
  }
  return all;
}

std::map<HostId, std::int64_t> Hosts::networks() const {
  constexpr std::uint64_t kFastest = 1'000'000'000'000;  // As policy::Nic has it.
  std::map<HostId, std::int64_t> all;
  for (const auto& [id, entry] : hosts_) {
    if (entry.facts.network > 0) {
      all[id] = static_cast<std::int64_t>(std::min(entry.facts.network, kFastest));
    }
  }
  return all;
}

std::string Hosts::device_name(DeviceId device) const {
  for (const core::ManagerDevice& one : devices()) {
    if (one.id == device) {
      return one.name;
    }
  }
  return {};
}

core::GuestPeers Hosts::guest_peers() const {
  core::GuestPeers peers;
  for (const auto& [id, entry] : hosts_) {
    const auto& pairs = entry.facts.guest_peers.pairs;
    peers.pairs.insert(peers.pairs.end(), pairs.begin(), pairs.end());
  }
  return peers;
}

std::map<HostId, host::Offer> Hosts::offers_of(const std::string& model) const {
  std::map<HostId, host::Offer> all;
  for (const auto& [id, entry] : hosts_) {
    const auto found = std::ranges::find(entry.offers, model, &host::Offer::name);
    if (found != entry.offers.end()) {
      all[id] = *found;
    }
  }
  return all;
}

std::optional<core::GroupHost> Hosts::sharing(HostId id) const {
  const host::HostPort* there = port(id);
  return there != nullptr && there->shares_cache() ? there->address() : std::nullopt;
}

host::Holder Hosts::holder(const std::string& model,
                           const std::map<HostId, host::Offer>& offers) const {
  host::Holder holder{.model = model};
  for (const bool fetched : {false, true}) {
    for (const auto& [id, offer] : offers) {
      const bool has = !offer.failure && !offer.digest.empty() && offer.fetched == fetched;
      std::optional<core::GroupHost> there = has ? sharing(id) : std::nullopt;
      if (there && holder.hosts.size() < kHoldersMost) {
        holder.hosts.push_back(std::move(*there));
      }
    }
  }
  return holder;
}

void Hosts::describe(std::vector<core::DeviceStatus>& devices) const {
  for (core::DeviceStatus& device : devices) {
    if (const host::HostPort* there = port(host_of(device.id))) {
      there->describe(device);
    }
  }
}

ledger::PoolUsage Hosts::usage() const {
  ledger::PoolUsage all;
  for (const auto& [id, entry] : hosts_) {
    ledger::add(entry.port->host_usage(), all);
  }
  return all;
}

std::vector<core::EngineStatus> Hosts::engines() const {
  std::vector<core::EngineStatus> all;
  for (const auto& [id, entry] : hosts_) {
    for (core::EngineStatus& engine : entry.port->engines()) {
      all.push_back(std::move(engine));
    }
  }
  const auto rank = [](const core::EngineStatus& engine) {
    return std::pair(engine.model, engine.state == core::EngineState::kStopped);
  };
  std::ranges::sort(all, {}, rank);
  const auto others = std::ranges::unique(all, {}, &core::EngineStatus::model);
  all.erase(others.begin(), others.end());
  return all;
}

std::map<std::string, core::FetchStatus> Hosts::fetches() const {
  std::map<std::string, core::FetchStatus> all;
  for (const auto& [id, entry] : hosts_) {
    for (const core::FetchStatus& one : entry.port->fetches()) {
      core::FetchStatus& sum = all[one.model];
      const std::uint64_t fetched = sum.fetched_bytes + one.fetched_bytes;
      const std::uint64_t given = sum.peer_bytes + one.peer_bytes;
      if (sum.active && one.active) {
        sum.bytes += one.bytes;
        sum.total_bytes += one.total_bytes;
        sum.bytes_per_second += one.bytes_per_second;
      } else if (!sum.active) {
        sum = one;
      }
      sum.fetched_bytes = fetched;
      sum.peer_bytes = given;
    }
  }
  return all;
}

std::vector<std::string> Hosts::troubles() const {
  std::vector<std::string> all;
  for (const auto& [id, entry] : hosts_) {
    for (const std::string& trouble : entry.port->troubles()) {
      all.push_back(entry.facts.name.empty() ? trouble
                                             : "host " + entry.facts.name + ": " + trouble);
    }
  }
  return all;
}

}  // namespace heddle::manager
