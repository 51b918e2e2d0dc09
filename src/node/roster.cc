#include "node/roster.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/log.h"
#include "cluster/membership.h"
#include "cluster/mirror.h"
#include "net/address.h"

namespace heddle::node {

namespace asio = boost::asio;

bool hosts_join(const config::ClusterConfig& cluster) {
  return cluster.hosts.empty() && !cluster.registry.empty();
}
bool gateways_join(const config::ClusterConfig& cluster) {
  return cluster.gateways.empty() && !cluster.registry.empty();
}

class Roster::Impl {
 public:
  Impl(const asio::any_io_executor& executor,
       const config::ClusterConfig& cluster,
       std::shared_ptr<cluster::Registry> registry,
       std::function<void()> changed)
      : changed_(std::move(changed)) {
    for (const config::ClusterMember& host : cluster.hosts) {
      hosts_.push_back({.id = HostId(hosts_.size() + 1),
                        .name = host.name,
                        .address = {.host = host.host, .port = host.port}});
    }
    for (const std::string& name : cluster.gateways) {
      gateways_[name] = FrontId(gateways_.size() + 1);
    }
    if (hosts_join(cluster)) {
      joined_hosts_.emplace(
          executor, registry, std::string(prefix_of(cluster::Role::kHost)), [this] {
            read_hosts();
          });
    }
    if (gateways_join(cluster)) {
      joined_gateways_.emplace(
          executor, registry, std::string(prefix_of(cluster::Role::kGateway)), [this] {
            read_gateways();
          });
    }
  }

  [[nodiscard]] const std::vector<remote::HostAddress>& hosts() const { return hosts_; }
  [[nodiscard]] const std::map<std::string, FrontId>& gateways() const { return gateways_; }

 private:
  /// What a record says of a member; nothing, and a line in the log, where it makes no sense.
  static std::optional<cluster::MemberRecord> read(const cluster::Record& record) {
    Result<cluster::MemberRecord> member = cluster::parse_member_record(record.value);
    if (!member) {
      log::warning("a record of the registry is left out",
                   {{"key", record.key}, {"why", member.error().message}});
      return std::nullopt;
    }
    return std::move(*member);
  }
  static std::string name_of(const cluster::Record& record) {
    return record.key.substr(record.key.find('/') + 1);
  }

  void read_hosts() {
    std::vector<remote::HostAddress> now;
    for (const auto& [key, record] : joined_hosts_->records()) {
      const std::optional<cluster::MemberRecord> member = read(record);
      const auto address =
          member ? config::parse_listen(member->address) : Result<config::ListenAddress>(Error{});
      if (member && address) {
        now.push_back({.id = HostId(member->identity.id),
                       .name = name_of(record),
                       .address = {.host = address->host, .port = address->port}});
      } else if (member) {
        log::warning("a host has joined without an address at which it can be reached",
                     {{"key", key}, {"address", member->address}});
      }
    }
    std::ranges::sort(now, {}, &remote::HostAddress::id);
    if (now != hosts_) {
      hosts_ = std::move(now);
      changed_();
    }
  }

  void read_gateways() {
    std::map<std::string, FrontId> now;
    for (const auto& [key, record] : joined_gateways_->records()) {
      if (const std::optional<cluster::MemberRecord> member = read(record)) {
        now[name_of(record)] = FrontId(member->identity.id);
      }
    }
    if (now != gateways_) {
      gateways_ = std::move(now);
      changed_();
    }
  }

  std::function<void()> changed_;
  std::vector<remote::HostAddress> hosts_{};
  std::map<std::string, FrontId> gateways_{};
  std::optional<cluster::Mirror> joined_hosts_{};
  std::optional<cluster::Mirror> joined_gateways_{};
};

Roster::Roster(const asio::any_io_executor& executor,
               const config::ClusterConfig& cluster,
               std::shared_ptr<cluster::Registry> registry,
               std::function<void()> changed)
    : impl_(std::make_unique<Impl>(executor, cluster, std::move(registry), std::move(changed))) {}

Roster::~Roster() = default;

std::vector<remote::HostAddress> Roster::hosts() const {
  return impl_->hosts();
}
std::optional<FrontId> Roster::gateway(const std::string& name) const {
  const auto found = impl_->gateways().find(name);
  return found == impl_->gateways().end() ? std::nullopt : std::optional(found->second);
}
std::size_t Roster::gateways() const {
  return impl_->gateways().size();
}

}  // namespace heddle::node
