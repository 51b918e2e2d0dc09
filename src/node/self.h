#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "config/config.h"
#include "net/address.h"
#include "net/host_link.h"
#include "net/identity.h"

/// A process of a cluster: who it is, and what of the configuration is its own.
namespace heddle::node {

/// Who a process is among the others.
struct NodeSelf {
  std::string name{};
  /// Of a host its HostId, of a gateway its FrontId. 0 of a manager, and of who has yet to join.
  std::uint64_t number = 0;
  net::Address listen{};   ///< Where it takes links; numeric. None of a gateway.
  net::Address address{};  ///< Where others reach it. None of a gateway.
  net::Self self{};
};

/// The process of this role and name, as the configuration's `cluster` has it; of a cluster whose
/// hosts or gateways join by the registry, any. An empty name is
/// that of the machine. kInvalidArgument where there is no such process, with those that there are;
/// kFailedPrecondition where its certificate is of another; errors as net::Credentials::open.
/// Its incarnation is the time, so that clocks of one machine must not go back between its starts.
/// @param build    The version of the program.
/// @param address  "host:port", where others reach a host that the configuration does not list;
///                 empty: at the machine's name.
Result<NodeSelf> find_self(const config::Config& config,
                           net::Role role,
                           const std::string& name,
                           const std::string& build,
                           const std::string& address = {});

/// The numeric address that such a member listens at: its own, or any of the machine's where the
/// configuration has a name for it.
[[nodiscard]] net::Address listen_at(const config::ClusterMember& member);

/// Logs that somebody was not let in; that somebody has gone by itself, as who only looks whether a
/// port is open, for debugging alone.
void log_refused(const Error& why);

/// Parses a configuration but for what is a host's own: devices and memory, which this machine need
/// not have, and on which of them external engines are. Errors as config::parse_config.
Result<config::Config> parse_cluster(const std::string& text, const std::string& file);

/// `own`, with what is the whole cluster's from `text`: models, how they are placed, and what is
/// loaded at the start. Files of models, and programs of engines, are sought from the folder of
/// `own`; engines are on its devices. kInvalidArgument, a
/// line for each problem, where the text is no configuration.
Result<config::Config> with_cluster(const config::Config& own, const std::string& text);

}  // namespace heddle::node
