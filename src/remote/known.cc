#include "remote/known.h"

#include <algorithm>

namespace heddle::remote {

namespace {

/// Hosts that a manager may name for one fetch.
constexpr std::size_t kPeersMost = 16;

Error wrong(std::string message) {
  return {.code = Code::kCorrupt, .message = std::move(message)};
}

/// The first that is not good.
template <class... Checks>
Result<void> all_of(const Checks&... checks) {
  Result<void> good;
  (void)((good = checks()).has_value() && ...);
  return good;
}

/// The host that a message of `own` names.
HostId host_of_message(const core::ImageState& image, HostId /*own*/) {
  return image.host;
}
HostId host_of_message(const core::HostLeaving& leaving, HostId /*own*/) {
  return leaving.host;
}
template <class T>
HostId host_of_message(const T& /*message*/, HostId own) {
  return own;
}

/// The devices that a message names.
template <class T>
std::vector<DeviceId> devices_of(const T& message) {
  if constexpr (requires { message.device; }) {
    return {message.device};
  } else {
    return {};
  }
}
std::vector<DeviceId> devices_of(const HostStatus& status) {
  std::vector<DeviceId> all;
  for (const core::DeviceStatus& device : status.devices) {
    all.push_back(device.id);
  }
  for (const core::EngineStatus& engine : status.engines) {
    all.push_back(engine.device);
    all.insert(all.end(), engine.further.begin(), engine.further.end());
  }
  return all;
}
std::vector<DeviceId> devices_of(const Offers& offers) {
  std::vector<DeviceId> all;
  for (const host::Offer& offer : offers.offers) {
    for (const host::OfferedRank& rank : offer.ranks) {
      for (const auto& [device, footprint] : rank.footprints) {
        all.push_back(device);
      }
    }
    for (const host::Block& block : offer.blocks) {
      all.insert(all.end(), block.devices.begin(), block.devices.end());
    }
  }
  return all;
}

/// Whether each offer that is none of a failure says where the model can be.
Result<void> check_offers(const Offers& offers) {
  for (const host::Offer& offer : offers.offers) {
    const bool whole = std::ranges::all_of(offer.blocks, [&](const host::Block& block) {
      return block.devices.size() == offer.ranks.size();
    });
    if (!offer.failure && (offer.ranks.empty() || !whole)) {
      return wrong("an offer of model \"" + offer.name + "\" in " +
                   std::to_string(offer.ranks.size()) +
                   " ranks; want one or more, and blocks of as many devices");
    }
  }
  return {};
}

/// What an order is about: devices of this host alone, and models that it was told of.
using Subjects = std::pair<std::vector<DeviceId>, std::vector<ModelId>>;
/// Of a group, what of it is on this host.
Subjects subjects(const core::FormGroup& form, HostId own) {
  Subjects all;
  for (const core::GroupMember& member : form.members) {
    if (host_of(member.device) == own) {
      all.first.push_back(member.device);
    }
    all.second.push_back(member.model);
  }
  return all;
}
Subjects subjects(const core::Weave& weave, HostId /*own*/) {
  return {{weave.host, weave.hot}, {weave.model}};
}
Subjects subjects(const core::Unweave& unweave, HostId /*own*/) {
  return {{unweave.host}, {unweave.model}};
}
/// Whether it says where the agents of the other hosts are.
Result<void> check_hosts(const core::FormGroup& form, HostId own) {
  for (const core::GroupMember& member : form.members) {
    const HostId host = host_of(member.device);
    if (host != own &&
        std::ranges::find(form.hosts, host, &core::GroupHost::id) == form.hosts.end()) {
      return wrong("a group with a worker of host " + std::to_string(host.value()) +
                   ", and not where that host is");
    }
  }
  return {};
}
template <class T>
Subjects subjects(const T& order, HostId /*own*/) {
  return {{order.device}, {order.model}};
}

}  // namespace

KnownDevices::KnownDevices(HostId host, const std::vector<core::ManagerDevice>& devices)
    : host_(host) {
  for (const core::ManagerDevice& device : devices) {
    devices_.insert(device.id);
  }
}

Result<void> KnownDevices::check(DeviceId device) const {
  if (devices_.contains(device)) {
    return {};
  }
  return wrong(
      "device " + std::to_string(device.value()) + " is none of the " +
      std::to_string(devices_.size()) + " of host " + std::to_string(host_.value()) +
      (devices_.empty() ? "" : ", which begin at " + std::to_string(devices_.begin()->value())));
}

Result<void> KnownDevices::check(const FromHost& message) const {
  for (const DeviceId device :
       std::visit([](const auto& said) { return devices_of(said); }, message)) {
    if (Result<void> known = check(device); !known) {
      return known;
    }
  }
  if (const auto* const offers = std::get_if<Offers>(&message)) {
    return check_offers(*offers);
  }
  const HostId host =
      std::visit([this](const auto& said) { return host_of_message(said, host_); }, message);
  if (host != host_) {
    return wrong("news of host " + std::to_string(host.value()) + ", and this is host " +
                 std::to_string(host_.value()));
  }
  return {};
}

Result<void> check_facts(const host::HostFacts& facts, HostId host, const std::string& name) {
  if (facts.name != name) {
    return wrong("a host that calls itself \"" + facts.name +
                 "\", and its certificate calls it \"" + name + "\"");
  }
  std::set<DeviceId> seen;
  for (const core::ManagerDevice& device : facts.devices) {
    if (host_of(device.id) != host || !seen.insert(device.id).second) {
      return wrong("device " + std::to_string(device.id.value()) + " of host " +
                   std::to_string(host.value()) + "; want each once, numbered from " +
                   std::to_string(device_id(host, 0).value()));
    }
    if (device.page_bytes == 0) {
      return wrong("device " + std::to_string(device.id.value()) + " has pages of 0 bytes");
    }
  }
  const KnownDevices known(host, facts.devices);
  for (const auto& [one, other] : facts.guest_peers.pairs) {
    const Result<void> both =
        all_of([&] { return known.check(one); }, [&] { return known.check(other); });
    if (!both) {
      return both;
    }
  }
  return {};
}

Result<void> KnownModels::take(const std::vector<host::Assignment>& models) {
  auto meanings = meanings_;
  for (const host::Assignment& model : models) {
    for (std::size_t rank = 0; rank < model.ids.size(); ++rank) {
      const std::pair<Meaning, std::size_t> means{{model.name, model.digest}, rank};
      const auto [at, added] = meanings.emplace(model.ids[rank], means);
      if (at->second != means) {
        return wrong("model " + std::to_string(model.ids[rank].value()) + " is \"" + model.name +
                     "\" now and was \"" + at->second.first.first +
                     "\" before, or had other files; want an id that was never given");
      }
    }
  }
  meanings_ = std::move(meanings);
  for (const host::Assignment& old : now_) {
    if (std::ranges::find(models, old) == models.end()) {
      before_.push_back(old);
    }
  }
  std::erase_if(before_, [&](const host::Assignment& old) {
    return std::ranges::find(models, old) != models.end();
  });
  now_ = models;
  return {};
}

Result<void> KnownModels::check(ModelId model) const {
  if (meanings_.contains(model)) {
    return {};
  }
  return wrong("model " + std::to_string(model.value()) + " is none of the " +
               std::to_string(meanings_.size()) + " that the host was told of");
}

std::vector<host::Assignment> KnownModels::all() const {
  std::vector<host::Assignment> all = now_;
  all.insert(all.end(), before_.begin(), before_.end());
  return all;
}

Result<void> check_order(const host::HostOrder& order,
                         const KnownDevices& devices,
                         const KnownModels& models) {
  const HostId own = devices.host();
  const auto about = std::visit([own](const auto& wanted) { return subjects(wanted, own); }, order);
  if (about.first.empty()) {
    return wrong("a group of no workers of this host");
  }
  if (const auto* form = std::get_if<core::FormGroup>(&order)) {
    if (Result<void> reached = check_hosts(*form, own); !reached) {
      return reached;
    }
  }
  if (const auto* load = std::get_if<core::LoadOn>(&order);
      load != nullptr && load->peers.size() > kPeersMost) {
    return wrong("more than " + std::to_string(kPeersMost) + " hosts to fetch one model from");
  }
  for (const DeviceId device : about.first) {
    if (Result<void> known = devices.check(device); !known) {
      return known;
    }
  }
  for (const ModelId model : about.second) {
    if (Result<void> known = models.check(model); !known) {
      return known;
    }
  }
  return {};
}

}  // namespace heddle::remote
