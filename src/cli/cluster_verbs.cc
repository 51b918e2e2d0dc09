#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/metrics.h"
#include "cli/process.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "gateway/status_server.h"
#include "node/agent_node.h"
#include "node/gateway_node.h"
#include "node/manager_node.h"
#include "node/membership.h"
#include "node/self.h"

namespace heddle::cli {

namespace asio = boost::asio;

namespace {

/// Of an agent beside the loop's, with some to spare; each device adds the process of a worker.
constexpr std::size_t kAgentThreads = 8;
constexpr std::size_t kGatewayThreads = 8;
constexpr std::size_t kManagerThreads = 4;

/// The configuration, and which process of its cluster this is.
struct Started {
  config::Config config{};
  node::NodeSelf self{};
};

/// The text of a file.
Result<std::string> text_of(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return Error{.code = Code::kNotFound,
                 .message = "read configuration \"" + file +
                            "\": no such file, or not readable; name one with --config FILE"};
  }
  return text.str();
}

/// As a process without devices of its own reads it.
Result<config::Config> load_cluster(const std::string& file) {
  const Result<std::string> text = text_of(file);
  return text ? node::parse_cluster(*text, file) : Result<config::Config>(text.error());
}

Result<Started> read(const NodeOptions& options, net::Role role) {
  Result<config::Config> config =
      role == net::Role::kAgent ? config::load_config(options.config, config::EnginePlaces::kByHost)
                                : load_cluster(options.config);
  if (!config) {
    return config.error();
  }
  Result<node::NodeSelf> self =
      node::find_self(*config, role, options.name, version_text(), options.address);
  if (!self) {
    return self.error();
  }
  return Started{.config = std::move(*config), .self = std::move(*self)};
}

/// Tells of the process over HTTP where the configuration says so; else null.
template <class Node>
Result<std::unique_ptr<gateway::StatusServer>> status_of(asio::io_context& loop,
                                                         const Started& started,
                                                         Metrics& metrics,
                                                         const Node& node) {
  const std::optional<config::ListenAddress>& at = started.config.cluster->status;
  if (!at) {
    return std::unique_ptr<gateway::StatusServer>();
  }
  return gateway::StatusServer::listen(loop, *at, metrics, [&node] { return node.troubles(); });
}

ProcessSetup setup_of(const Started& started, const std::string& what, std::size_t threads) {
  return {.what = what,
          .threads = threads,
          .log_level = started.config.log_level,
          .log_format = started.config.log_format,
          .patience = started.config.shutdown_timeout};
}

/// Says where it is once the loop runs: whoever reads it may send a signal at once.
void greet(asio::io_context& loop,
           const std::string& what,
           const Started& started,
           const std::string& at) {
  asio::post(loop,
             [text = "heddle " + version_text() + ": " + what + " " + started.self.name +
                     " of cluster " + started.config.cluster->name + " at " + at] {
               std::printf("%s\n", text.c_str());
               std::fflush(stdout);
             });
}

std::string place(const node::NodeSelf& self, std::uint16_t port) {
  return net::Address{.host = self.listen.host, .port = port}.text();
}

// ---- Agent ----

class AgentService final : public Service {
 public:
  AgentService(std::unique_ptr<Metrics> metrics,
               std::unique_ptr<node::Membership> membership,
               std::unique_ptr<node::AgentNode> agent,
               std::unique_ptr<gateway::StatusServer> status)
      : metrics_(std::move(metrics)),
        membership_(std::move(membership)),
        agent_(std::move(agent)),
        status_(std::move(status)) {}

  void reload() override {
    log::warning("an agent takes its models from its manager; devices and memory take a restart");
  }
  /// Requests that run here end. Those that do not in time go on elsewhere, as the links end.
  void end(Duration patience, std::function<void()> done) override {
    agent_->leave(patience, [this, done = std::move(done)] { membership_->leave(done); });
  }

 private:
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<node::Membership> membership_;
  std::unique_ptr<node::AgentNode> agent_;
  std::unique_ptr<gateway::StatusServer> status_;
};

// ---- Manager ----

/// The file as it is, and as it is read.
Result<node::ClusterText> read_cluster(const std::string& file, const config::Config& config) {
  Result<std::string> text = text_of(file);
  if (!text) {
    return text.error();
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return node::ClusterText{.revision = static_cast<std::uint64_t>(
                               std::chrono::duration_cast<std::chrono::milliseconds>(now).count()),
                           .text = std::move(*text),
                           .config = config};
}

class ManagerService final : public Service {
 public:
  ManagerService(std::string file,
                 std::unique_ptr<Metrics> metrics,
                 std::unique_ptr<node::ManagerNode> manager,
                 std::unique_ptr<gateway::StatusServer> status)
      : file_(std::move(file)),
        metrics_(std::move(metrics)),
        manager_(std::move(manager)),
        status_(std::move(status)) {}

  void reload() override {
    const Result<config::Config> config = load_cluster(file_);
    Result<node::ClusterText> cluster =
        config ? read_cluster(file_, *config) : Result<node::ClusterText>(config.error());
    const Result<void> done =
        cluster ? manager_->reconfigure(std::move(*cluster)) : Result<void>(cluster.error());
    if (!done) {
      log::error("the configuration was not reloaded", {{"why", done.error().message}});
    } else {
      log::info("configuration reloaded", {{"models", config->models.size()}});
    }
  }
  /// What runs goes on without it.
  void end(Duration /*patience*/, std::function<void()> done) override {
    manager_->leave(std::move(done));
  }

 private:
  std::string file_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<node::ManagerNode> manager_;
  std::unique_ptr<gateway::StatusServer> status_;
};

// ---- Gateway ----

class GatewayService final : public Service {
 public:
  GatewayService(std::string file,
                 std::unique_ptr<Metrics> metrics,
                 std::unique_ptr<node::Membership> membership,
                 std::unique_ptr<node::GatewayNode> gateway)
      : file_(std::move(file)),
        metrics_(std::move(metrics)),
        membership_(std::move(membership)),
        gateway_(std::move(gateway)) {}

  void reload() override {
    const Result<config::Config> config = load_cluster(file_);
    if (!config) {
      log::error("the configuration was not reloaded", {{"why", config.error().message}});
      return;
    }
    gateway_->reload(*config);
    log::info("configuration reloaded; models are those of the manager");
  }
  void end(Duration patience, std::function<void()> done) override {
    gateway_->drain(patience, [this, done = std::move(done)] { membership_->leave(done); });
  }

 private:
  std::string file_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<node::Membership> membership_;
  std::unique_ptr<node::GatewayNode> gateway_;
};

}  // namespace

int agent(const NodeOptions& options) {
  Result<Started> started = read(options, net::Role::kAgent);
  if (!started) {
    return fail(started.error());
  }
  ProcessSetup setup =
      setup_of(*started, "the agent", kAgentThreads + started->config.devices.size());
  setup.start = [&](asio::io_context& loop) -> Result<std::unique_ptr<Service>> {
    auto membership =
        node::Membership::begin(loop, started->config, net::Role::kAgent, started->self);
    if (!membership) {
      return membership.error();
    }
    auto metrics = std::make_unique<Metrics>();
    auto agent =
        node::AgentNode::create(loop.get_executor(), started->config, started->self, *metrics);
    if (!agent) {
      return agent.error();
    }
    auto status = status_of(loop, *started, *metrics, **agent);
    if (!status) {
      return status.error();
    }
    greet(loop, "agent", *started, place(started->self, (*agent)->port()));
    return std::unique_ptr<Service>(std::make_unique<AgentService>(
        std::move(metrics), std::move(*membership), std::move(*agent), std::move(*status)));
  };
  return run_process(setup);
}

int manager(const NodeOptions& options) {
  const Result<Started> started = read(options, net::Role::kManager);
  if (!started) {
    return fail(started.error());
  }
  const Result<node::ClusterText> cluster = read_cluster(options.config, started->config);
  if (!cluster) {
    return fail(cluster.error());
  }
  ProcessSetup setup = setup_of(*started, "the manager", kManagerThreads);
  setup.start = [&](asio::io_context& loop) -> Result<std::unique_ptr<Service>> {
    auto metrics = std::make_unique<Metrics>();
    auto manager =
        node::ManagerNode::create(loop.get_executor(), *cluster, started->self, *metrics);
    if (!manager) {
      return manager.error();
    }
    auto status = status_of(loop, *started, *metrics, **manager);
    if (!status) {
      return status.error();
    }
    greet(loop, "manager", *started, place(started->self, (*manager)->port()));
    return std::unique_ptr<Service>(std::make_unique<ManagerService>(
        options.config, std::move(metrics), std::move(*manager), std::move(*status)));
  };
  return run_process(setup);
}

int gateway(const NodeOptions& options) {
  Result<Started> started = read(options, net::Role::kGateway);
  if (!started) {
    return fail(started.error());
  }
  if (!options.listen.empty()) {
    started->config.listen.clear();
    for (const std::string& text : options.listen) {
      const Result<config::ListenAddress> address = config::parse_listen(text);
      if (!address) {
        return fail(
            {.code = address.error().code, .message = "--listen: " + address.error().message});
      }
      started->config.listen.push_back(*address);
    }
  }
  ProcessSetup setup = setup_of(*started, "the gateway", kGatewayThreads);
  setup.start = [&](asio::io_context& loop) -> Result<std::unique_ptr<Service>> {
    auto membership =
        node::Membership::begin(loop, started->config, net::Role::kGateway, started->self);
    if (!membership) {
      return membership.error();
    }
    auto metrics = std::make_unique<Metrics>();
    auto gateway = node::GatewayNode::create(loop, started->config, started->self, *metrics);
    if (!gateway) {
      return gateway.error();
    }
    for (const config::ListenAddress& address : (*gateway)->addresses()) {
      const bool tls = address.scheme == config::Scheme::kHttps;
      greet(loop,
            "gateway",
            *started,
            (tls ? "https://" : "http://") +
                net::Address{.host = address.host, .port = address.port}.text());
    }
    return std::unique_ptr<Service>(std::make_unique<GatewayService>(
        options.config, std::move(metrics), std::move(*membership), std::move(*gateway)));
  };
  return run_process(setup);
}

}  // namespace heddle::cli
