#include "lab/servers.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/descriptor.h"
#include "net/authority.h"
#include "spec/json_writer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::lab {

namespace {

constexpr const char* kCluster = "lab";
constexpr const char* kManager = "lab-manager";
constexpr const char* kGateway = "lab-gateway";
/// Of certificates, which nobody uses after the run.
constexpr std::chrono::days kGoodFor{30};

/// A port of loopback that nobody listens on now.
Result<std::uint16_t> free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), any, size) != 0 ||
      ::getsockname(socket.get(), any, &size) != 0) {
    return Error{.code = Code::kUnavailable,
                 .message = std::string("find a free port: ") + std::strerror(errno)};
  }
  return ::ntohs(address.sin_port);
}

void put(config::Node& document, config::Node child) {
  std::erase_if(document.children, [&](const config::Node& each) { return each.key == child.key; });
  document.children.push_back(std::move(child));
}

/// A site that has all models of the policy, whose configuration, and those of its hosts, have them
/// come from there.
Result<std::unique_ptr<ModelSite>> serve_models(LabPolicy& policy) {
  std::vector<std::string> folders;
  std::map<std::string, std::size_t> indices;
  for (const config::ModelConfig& model : policy.config.models) {
    indices[model.id] = folders.size();
    folders.push_back(model.path);
  }
  auto site = ModelSite::start(std::move(folders));
  if (!site) {
    return site.error();
  }
  const auto redirect = [&](config::Node& document) {
    for (config::Node& section : document.children) {
      for (config::Node& model : section.children) {
        if (section.key == "models") {
          put(model,
              {.kind = config::Node::Kind::kScalar,
               .key = "path",
               .text = (*site)->url(indices.at(model.key)),
               .quoted = true});
        }
      }
    }
  };
  redirect(policy.document);
  for (LabHost& host : policy.hosts) {
    redirect(host.document);
  }
  return site;
}

/// That of this process, but for a cache of its own, and for proxies.
std::vector<std::string> environment_of(const std::string& cache) {
  std::vector<std::string> variables;
  for (const char* const* entry = ::environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    std::string name = variable.substr(0, variable.find('='));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!name.ends_with("_proxy") && name != "xdg_cache_home") {
      variables.push_back(variable);
    }
  }
  variables.push_back("XDG_CACHE_HOME=" + cache);
  return variables;
}

/// Writes `document` with a data folder of its own, as JSON. Gives the file.
Result<std::string> write_config(config::Node document,
                                 const std::string& folder,
                                 const std::string& name) {
  put(document,
      {.kind = config::Node::Kind::kScalar,
       .key = "dataDir",
       .text = folder + "/data/" + name,
       .quoted = true});
  std::string file = folder + "/" + name + ".json";
  std::ofstream stream(file, std::ios::binary);
  if (!(stream << config::to_json(document)) || !stream.flush()) {
    return Error{.code = Code::kUnavailable, .message = file + ": cannot be written"};
  }
  return file;
}

/// An authority of the run's own, and who has its certificates.
Result<void> make_certificates(const LabPolicy& policy, const std::string& folder) {
  const net::Validity validity{
      .now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()),
      .days = kGoodFor};
  if (const auto authority = net::make_authority(folder, kCluster, validity); !authority) {
    return authority.error();
  }
  std::vector<net::CertificateRequest> requests{{.role = net::Role::kManager, .name = kManager},
                                                {.role = net::Role::kGateway, .name = kGateway}};
  for (const LabHost& host : policy.hosts) {
    requests.push_back({.role = net::Role::kAgent, .name = host.name});
  }
  for (const net::CertificateRequest& request : requests) {
    if (const auto issued = net::issue_certificate(folder, request, validity); !issued) {
      return issued.error();
    }
  }
  return {};
}

/// The section "cluster" of everybody's configuration.
Result<config::Node> cluster_section(const LabPolicy& policy, const std::string& certificates) {
  spec::JsonWriter json;
  Result<void> had;
  const auto add = [&](const std::string& name) {
    const Result<std::uint16_t> port = free_port();
    if (!port) {
      had = port.error();
      return;
    }
    json.key(name).begin_object().key("address");
    json.string("127.0.0.1:" + std::to_string(*port)).end_object();
  };
  json.begin_object().key("cluster").begin_object();
  json.key("name").string(kCluster).key("certs").string(certificates);
  json.key("managers").begin_object();
  add(kManager);
  json.end_object().key("hosts").begin_object();
  for (const LabHost& host : policy.hosts) {
    add(host.name);
  }
  json.end_object().key("gateways").begin_array().string(kGateway).end_array();
  json.end_object().end_object();
  if (!had) {
    return had.error();
  }
  const config::Environment none = [](const std::string&) { return std::nullopt; };
  Result<config::Node> document = config::parse_document(json.text(), "the cluster", none);
  if (!document) {
    return document.error();
  }
  return std::move(document->children.front());
}

/// A process to start: its verb, its name and its configuration.
struct Role {
  std::string verb{};
  std::string name{};
  config::Node document{};
};

/// Hosts first, then who looks for them, and last whom clients ask.
Result<std::vector<Role>> roles_of(const LabPolicy& policy, const std::string& folder) {
  if (policy.hosts.empty()) {
    return std::vector<Role>{{.verb = "serve", .name = "heddle", .document = policy.document}};
  }
  const std::string certificates = folder + "/certs";
  if (const Result<void> made = make_certificates(policy, certificates); !made) {
    return made.error();
  }
  const Result<config::Node> cluster = cluster_section(policy, certificates);
  if (!cluster) {
    return cluster.error();
  }
  std::vector<Role> roles;
  for (const LabHost& host : policy.hosts) {
    roles.push_back({.verb = "agent", .name = host.name, .document = host.document});
  }
  roles.push_back({.verb = "manager", .name = kManager, .document = policy.document});
  roles.push_back({.verb = "gateway", .name = kGateway, .document = policy.document});
  for (Role& role : roles) {
    put(role.document, *cluster);
  }
  return roles;
}

}  // namespace

Result<std::unique_ptr<Servers>> Servers::start(const std::string& program,
                                                const LabPolicy& of_experiment,
                                                const std::string& folder,
                                                bool cold,
                                                Duration patience) {
  LabPolicy policy = of_experiment;
  auto servers = std::make_unique<Servers>();
  if (cold) {
    auto site = serve_models(policy);
    if (!site) {
      return site.error();
    }
    servers->site_ = std::move(*site);
  }
  std::error_code failure;
  std::filesystem::remove_all(folder, failure);  // Of an earlier experiment: each run starts fresh.
  std::filesystem::create_directories(folder + "/data", failure);
  const Result<std::vector<Role>> roles = roles_of(policy, folder);
  if (!roles) {
    return roles.error();
  }
  for (const Role& role : *roles) {
    const Result<std::string> config = write_config(role.document, folder, role.name);
    if (!config) {
      return config.error();
    }
    std::vector<std::string> command{program, role.verb, "--config", *config};
    if (!policy.hosts.empty()) {
      command.insert(command.end(), {"--name", role.name});
    }
    const std::string log = folder + "/" + (policy.hosts.empty() ? "log" : role.name) + ".txt";
    const auto environment =
        cold ? std::optional(environment_of(folder + "/cache/" + role.name)) : std::nullopt;
    auto process = ServerProcess::start(command, log, patience, environment);
    if (!process) {
      return process.error();
    }
    servers->processes_.push_back(std::move(*process));
  }
  return servers;
}

Result<void> Servers::stop(Duration patience) {
  Result<void> all;
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
    const Result<void> stopped = (*process)->stop(patience);
    all = all ? stopped : all;
  }
  return all;
}

}  // namespace heddle::lab
