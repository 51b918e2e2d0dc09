#include "manager/blocks.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "policy/admission.h"

namespace heddle::manager {

namespace {

/// What has to be the same of hosts that run one model together, in words.
using Kind = std::vector<std::pair<std::string, std::string>>;

Kind kind_of(const host::Offer& offer, const host::HostFacts& facts) {
  std::string weights;
  for (const host::OfferedRank& rank : offer.ranks) {
    weights += (weights.empty() ? "" : "+") + std::to_string(rank.image_bytes);
  }
  const std::uint64_t page = facts.devices.empty() ? 0 : facts.devices.front().page_bytes;
  return {{"processor features", facts.isa.empty() ? "unknown" : facts.isa},
          {"pages of", std::to_string(page) + " bytes"},
          {"build", facts.build.empty() ? "unknown" : facts.build},
          {"steps of", std::to_string(facts.step_tokens) + " tokens"},
          {"weights of", weights + " bytes"}};
}

/// A device in the ring of its kind of hosts.
struct Seat {
  DeviceId id{};
  std::int64_t pages = 0;
  bool in_host_memory = false;
};

std::vector<Seat> seats_of(HostId host, const host::Offer& offer, const host::HostFacts& facts) {
  std::vector<Seat> seats;
  for (const core::ManagerDevice& device : facts.devices) {
    if (host_of(device.id) == host && offer.ranks.front().footprints.contains(device.id)) {
      seats.push_back(
          {.id = device.id, .pages = device.pages, .in_host_memory = device.in_host_memory});
    }
  }
  return seats;
}

bool holds(const std::map<HostId, host::Offer>& offers, const Seat& seat, std::size_t rank) {
  const auto& footprints = offers.at(host_of(seat.id)).ranks[rank].footprints;
  const auto found = footprints.find(seat.id);
  return found != footprints.end() && policy::pages_to_load(found->second) <= seat.pages;
}

/// Led from the device at `first`; empty where the ring has too few that can hold the stages.
host::Block block_from(const std::map<HostId, host::Offer>& offers,
                       const std::vector<Seat>& ring,
                       std::size_t first,
                       std::size_t ranks) {
  host::Block block;
  for (std::size_t i = 0; i < ring.size() && block.devices.size() < ranks; ++i) {
    const Seat& seat = ring[(first + i) % ring.size()];
    const bool fits = seat.in_host_memory == ring[first].in_host_memory &&
                      holds(offers, seat, block.devices.size());
    if (fits) {
      block.devices.push_back(seat.id);
    } else if (i == 0) {
      break;
    }
  }
  return block.devices.size() == ranks ? block : host::Block{};
}

/// What differs between two kinds, and how: "build: h1 has 1.2, h2 has 1.3".
std::string difference(const Kind& one,
                       const std::string& one_name,
                       const Kind& other,
                       const std::string& other_name) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i] != other[i]) {
      return one_name + " has " + one[i].first + " " + one[i].second + ", " + other_name + " has " +
             other[i].first + " " + other[i].second;
    }
  }
  return {};
}

std::string why_none(const std::map<HostId, host::Offer>& offers,
                     const std::map<HostId, host::HostFacts>& hosts,
                     std::size_t ranks) {
  std::size_t devices = 0;
  std::string names;
  std::string differs;
  std::optional<std::pair<Kind, std::string>> first;
  for (const auto& [id, offer] : offers) {
    const auto host = hosts.find(id);
    if (host == hosts.end()) {
      continue;
    }
    const host::HostFacts& facts = host->second;
    devices += seats_of(id, offer, facts).size();
    names += (names.empty() ? "" : ", ") + facts.name;
    const Kind kind = kind_of(offer, facts);
    if (!first) {
      first = {kind, facts.name};
    } else if (differs.empty()) {
      differs = difference(first->first, first->second, kind, facts.name);
    }
  }
  return "it is in " + std::to_string(ranks) +
         " parts, each for a device that can hold it, of hosts that are alike; there are " +
         std::to_string(devices) + " devices for it, of " + (names.empty() ? "no host" : names) +
         (differs.empty() ? "" : ", and " + differs);
}

}  // namespace

Result<std::vector<host::Block>> find_blocks(const std::map<HostId, host::Offer>& offers,
                                             const std::map<HostId, host::HostFacts>& hosts) {
  std::vector<host::Block> blocks;
  std::map<Kind, std::vector<Seat>> rings;
  std::size_t ranks = 0;
  for (const auto& [id, offer] : offers) {
    ranks = std::max(ranks, offer.ranks.size());
    blocks.insert(blocks.end(), offer.blocks.begin(), offer.blocks.end());
    if (const auto host = hosts.find(id); host != hosts.end() && offer.blocks.empty()) {
      std::vector<Seat>& ring = rings[kind_of(offer, host->second)];
      const std::vector<Seat> seats = seats_of(id, offer, host->second);
      ring.insert(ring.end(), seats.begin(), seats.end());
    }
  }
  if (ranks <= 1) {
    return blocks;
  }
  for (const auto& [kind, ring] : rings) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      if (host::Block block = block_from(offers, ring, i, ranks); !block.devices.empty()) {
        blocks.push_back(std::move(block));
      }
    }
  }
  if (blocks.empty()) {
    return Error{Code::kUnavailable, why_none(offers, hosts, ranks)};
  }
  return blocks;
}

}  // namespace heddle::manager
