#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/messages.h"
#include "host/host_port.h"
#include "host/offer.h"
#include "remote/messages.h"

/// Whether what comes over a link can be so. Errors are kCorrupt and say what was named, and what
/// would be right.
namespace heddle::remote {

/// The devices of a host, which no message of it or to it goes beyond.
class KnownDevices {
 public:
  KnownDevices() = default;
  KnownDevices(HostId host, const std::vector<core::ManagerDevice>& devices);

  [[nodiscard]] HostId host() const { return host_; }
  [[nodiscard]] Result<void> check(DeviceId device) const;
  /// Of what a host says: whether it is of its own devices.
  [[nodiscard]] Result<void> check(const FromHost& message) const;

 private:
  HostId host_{};
  std::set<DeviceId> devices_{};
};

/// Whether facts are those of the host of this name and number.
Result<void> check_facts(const host::HostFacts& facts, HostId host, const std::string& name);

/// What a host was told to call its models.
class KnownModels {
 public:
  /// Nothing is taken over where an id would have another meaning than before.
  Result<void> take(const std::vector<host::Assignment>& models);
  [[nodiscard]] Result<void> check(ModelId model) const;
  /// All there ever were: those of now first.
  [[nodiscard]] std::vector<host::Assignment> all() const;

 private:
  using Meaning = std::pair<std::string, std::string>;  ///< Name and digest.

  std::map<ModelId, std::pair<Meaning, std::size_t>> meanings_{};  ///< With the rank.
  std::vector<host::Assignment> now_{};
  std::vector<host::Assignment> before_{};
};

/// Whether a host with these devices and models can be ordered so.
Result<void> check_order(const host::HostOrder& order,
                         const KnownDevices& devices,
                         const KnownModels& models);

}  // namespace heddle::remote
