#include "node/self.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include "base/log.h"
#include "config/document.h"
#include "node/roster.h"

#include <unistd.h>

namespace heddle::node {
namespace {

/// Of an agent that is told no address.
constexpr std::uint16_t kAgentPort = 7701;

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "none" : text;
}

std::vector<std::string> names_of(const std::vector<config::ClusterMember>& members) {
  std::vector<std::string> names;
  for (const config::ClusterMember& member : members) {
    names.push_back(member.name);
  }
  return names;
}

/// Where its key of `cluster` is, for messages.
std::string_view key_of(net::Role role) {
  switch (role) {
    case net::Role::kManager:
      return "managers";
    case net::Role::kGateway:
      return "gateways";
    case net::Role::kAgent:
      return "hosts";
  }
  return "";
}

/// By its place in a list.
Result<void> place_listed(const config::Config& config, net::Role role, NodeSelf& node) {
  const config::ClusterConfig& cluster = *config.cluster;
  const std::vector<config::ClusterMember>& members =
      role == net::Role::kManager ? cluster.managers : cluster.hosts;
  const std::vector<std::string> names =
      role == net::Role::kGateway ? cluster.gateways : names_of(members);
  const auto place = static_cast<std::size_t>(std::ranges::find(names, node.name) - names.begin());
  if (place == names.size()) {
    const bool could_join = role != net::Role::kManager && names.empty();
    return Error{.code = Code::kInvalidArgument,
                 .message = config.file + ": cluster." + std::string(key_of(role)) + " has no \"" +
                            node.name + "\"; there are: " + joined(names) +
                            (could_join ? ", and without cluster.registry nobody can join"
                                        : " (--name says which one this is)")};
  }
  if (role != net::Role::kManager) {
    node.number = place + 1;
  }
  if (role != net::Role::kGateway) {
    node.listen = listen_at(members[place]);
    node.address = {.host = members[place].host, .port = members[place].port};
  }
  return {};
}

/// By where it says that it is.
Result<void> place_joining(net::Role role, const std::string& address, NodeSelf& node) {
  if (role != net::Role::kAgent) {
    return {};
  }
  const std::string text =
      address.empty() ? machine_name() + ":" + std::to_string(kAgentPort) : address;
  const Result<config::ListenAddress> read = config::parse_listen(text);
  if (!read || read->port == 0 || read->host.empty() || text.find(':') == std::string::npos) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "--address is \"" + text +
                            "\"; want host:port, where managers and "
                            "gateways reach this host"};
  }
  node.address = {.host = read->host, .port = read->port};
  node.listen = listen_at({.name = node.name, .host = read->host, .port = read->port});
  return {};
}

}  // namespace

net::Address listen_at(const config::ClusterMember& member) {
  boost::system::error_code failure;
  boost::asio::ip::make_address(member.host, failure);
  return {.host = failure ? "0.0.0.0" : member.host, .port = member.port};
}

Result<NodeSelf> find_self(const config::Config& config,
                           net::Role role,
                           const std::string& name,
                           const std::string& build,
                           const std::string& address) {
  if (!config.cluster) {
    return Error{.code = Code::kInvalidArgument,
                 .message = config.file +
                            ": cluster is missing, which names the processes of the "
                            "cluster; `heddle serve` runs without"};
  }
  const config::ClusterConfig& cluster = *config.cluster;
  NodeSelf node{.name = name.empty() ? machine_name() : name};
  const bool joins = (role == net::Role::kAgent && hosts_join(cluster)) ||
                     (role == net::Role::kGateway && gateways_join(cluster));
  if (const Result<void> placed =
          joins ? place_joining(role, address, node) : place_listed(config, role, node);
      !placed) {
    return placed.error();
  }
  const std::string folder = cluster.certs.empty() ? config.directory + "/certs" : cluster.certs;
  Result<std::shared_ptr<net::Credentials>> credentials =
      net::Credentials::open({.authority = folder + "/ca.crt",
                              .certificate = folder + "/" + node.name + ".crt",
                              .key = folder + "/" + node.name + ".key"});
  if (!credentials) {
    return credentials.error();
  }
  const net::Identity wanted{.cluster = cluster.name, .role = role, .name = node.name};
  if ((*credentials)->identity() != wanted) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = (*credentials)->files().certificate + " is that of " +
                            (*credentials)->identity().text() + "; this process is " +
                            wanted.text() + ", for which `heddle certs issue` makes one"};
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  node.self = {.credentials = std::move(*credentials),
               .incarnation = static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::seconds>(now).count()),
               .build = build};
  return node;
}

void log_refused(const Error& why) {
  if (why.code == Code::kUnavailable) {
    log::debug("link not made", {{"why", why.message}});
  } else {
    log::warning("link refused", {{"why", why.message}});
  }
}

Result<config::Config> parse_cluster(const std::string& text, const std::string& file) {
  Result<config::Node> root = config::parse_document(text, file, config::process_environment);
  if (!root) {
    return root.error();
  }
  std::erase_if(root->children, [](const config::Node& node) {
    return node.key == "devices" || node.key == "host";
  });
  return config::parse_config(
      std::move(*root), file, config::this_machine(), config::EnginePlaces::kByHost);
}

Result<config::Config> with_cluster(const config::Config& own, const std::string& text) {
  Result<config::Config> shared = parse_cluster(text, own.directory + "/cluster.yaml");
  if (!shared) {
    return shared.error();
  }
  config::Config both = own;
  both.models = std::move(shared->models);
  both.groups = std::move(shared->groups);
  both.preload = std::move(shared->preload);
  both.planner = shared->planner;
  config::settle_engines(both);
  return both;
}

}  // namespace heddle::node
