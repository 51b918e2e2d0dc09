#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/manager/events.h"
#include "core/serving.h"
#include "host/host_port.h"
#include "host/offer.h"
#include "ledger/ledger.h"

namespace heddle::manager {

/// The hosts that a manager has met: how to reach each, what it is and what it offers. Loop thread.
class Hosts {
 public:
  /// It has left for good. False: it was not there.
  bool remove(HostId id);
  /// A host is there, perhaps again: with the devices that it has now.
  void add(HostId id, host::HostPort& port, host::HostFacts facts);
  void offered(HostId id, std::vector<host::Offer> offers);

  /// The host's port; null for one that is not there.
  [[nodiscard]] host::HostPort* port(HostId id) const;
  [[nodiscard]] std::vector<HostId> ids() const;
  /// Of all hosts, by id. Where there are several, their names begin with their host's.
  [[nodiscard]] std::vector<core::ManagerDevice> devices() const;
  [[nodiscard]] std::map<HostId, host::HostFacts> facts() const;
  /// At which hosts fetch models at most [bytes/s], of those of which that is known.
  [[nodiscard]] std::map<HostId, std::int64_t> networks() const;
  /// Empty for a device that there is not.
  [[nodiscard]] std::string device_name(DeviceId device) const;
  [[nodiscard]] core::GuestPeers guest_peers() const;
  /// What each host last said that it can do about the model of this name.
  [[nodiscard]] std::map<HostId, host::Offer> offers_of(const std::string& model) const;

  // ---- Hosts that give others what their caches have ----

  /// Where such a host is; nothing for another.
  [[nodiscard]] std::optional<core::GroupHost> sharing(HostId id) const;
  /// Which such hosts may have the files of a model that these offer; those first that had them
  /// when they opened it.
  [[nodiscard]] host::Holder holder(const std::string& model,
                                    const std::map<HostId, host::Offer>& offers) const;

  // ---- What there is to see ----

  void describe(std::vector<core::DeviceStatus>& devices) const;
  [[nodiscard]] ledger::PoolUsage usage() const;
  /// By model; of one that several hosts have, as it is where it is.
  [[nodiscard]] std::vector<core::EngineStatus> engines() const;
  /// By model, of all hosts together: what is being fetched counts before what was.
  [[nodiscard]] std::map<std::string, core::FetchStatus> fetches() const;
  [[nodiscard]] std::vector<std::string> troubles() const;

 private:
  struct Entry {
    host::HostPort* port = nullptr;
    host::HostFacts facts{};
    std::vector<host::Offer> offers{};
  };
  std::map<HostId, Entry> hosts_{};
};

}  // namespace heddle::manager
