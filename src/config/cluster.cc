#include "config/cluster.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace heddle::config {
namespace {

/// As ids of hosts, of which 0 is none.
constexpr std::size_t kMost = 65535;

void declare_members(Fields& f, Key key, std::vector<ClusterMember>& members) {
  f.named_sections(key, [&](const std::string& name, Fields& item) {
    ClusterMember member{.name = name};
    std::string text;
    item.text({"address", "Where the others of the cluster reach it: host:port."}, text);
    item.require("address", "host:port, where the others of the cluster reach it");
    const Result<ListenAddress> address = parse_listen(text);
    const bool named = text.find(':') != std::string::npos && !text.starts_with(':');
    if (!text.empty() &&
        (!named || !address || address->port == 0 || address->scheme != Scheme::kUsual)) {
      item.reject("address", "is \"" + text + "\"; want host:port");
    } else if (address) {
      member.host = address->host;
      member.port = address->port;
    }
    members.push_back(std::move(member));
  });
  if (members.size() > kMost) {
    f.reject(key.name, "has more than " + std::to_string(kMost) + " names");
  }
}

}  // namespace

void declare_cluster(Fields& f, Config& config) {
  f.section({"cluster", "The processes of a cluster of hosts; see the guide's page on clusters."},
            [&](Fields& item) {
              ClusterConfig cluster;
              item.text({"name", "As its certificates have it."}, cluster.name);
              item.require("name", "that of the cluster, as its certificates have it");
              item.path({"certs", "Folder with ca.crt and each process's NAME.crt and NAME.key."},
                        cluster.certs);
              item.text({"registry",
                         "Where several managers elect the one that leads, and hosts and gateways "
                         "that are not listed join: etcd://HOST:PORT, kubernetes://NAMESPACE or "
                         "file:FOLDER."},
                        cluster.registry);
              std::string status;
              item.text({"status",
                         "host:port where managers and agents answer /metrics, /healthz and "
                         "/readyz, in plain HTTP; without it they do not."},
                        status);
              if (const Result<ListenAddress> at = parse_listen(status); !status.empty() && at) {
                cluster.status = *at;
              } else if (!status.empty()) {
                item.reject("status", "is \"" + status + "\"; want host:port");
              }
              declare_members(item, {"managers", "Who decides, by name."}, cluster.managers);
              declare_members(
                  item,
                  {"hosts", "Who has devices, by name. Without it hosts join by the registry."},
                  cluster.hosts);
              item.texts(
                  {"gateways",
                   "Names of those who serve HTTP. Without it gateways join by the registry."},
                  cluster.gateways);
              config.cluster = std::move(cluster);
            });
}

}  // namespace heddle::config
