#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "node/self.h"

namespace heddle::node {

/// `heddle agent`: one host of a cluster. It runs what a manager orders and what gateways submit,
/// and ends neither with one nor with the other. Loop thread only.
class AgentNode {
 public:
  /// Makes the arena, which is why it is called before the loop runs, starts the workers and
  /// listens. What it does goes to `metrics`, which outlive it. Errors as
  /// host::ConfiguredHost::create and net::Listener::open.
  static Result<std::unique_ptr<AgentNode>> create(const boost::asio::any_io_executor& executor,
                                                   const config::Config& config,
                                                   const NodeSelf& self,
                                                   Metrics& metrics);
  /// Ends links, engines and workers: requests that run here go on elsewhere.
  ~AgentNode();
  AgentNode(const AgentNode&) = delete;
  AgentNode& operator=(const AgentNode&) = delete;

  /// Takes nothing new: what it has goes to other hosts, as a manager sees to, and requests end.
  /// `done` is called once, when nothing is left, or after `patience`.
  void leave(Duration patience, std::function<void()> done);
  /// What is wrong now, for people, a sentence each: why it cannot do all it should.
  [[nodiscard]] std::vector<std::string> troubles() const;
  /// Where it listens.
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Impl;
  explicit AgentNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::node
