#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/agent_core.h"
#include "twin/agenda.h"
#include "twin/faults.h"
#include "twin/setup.h"
#include "twin/stage_messages.h"
#include "twin/wire.h"

namespace heddle::twin {

class Worker;

/// Of all pipelines that there are or were, this one.
using PipeNo = Id<struct PipeNoTag>;

/// What connects the stages of pipelines: sockets within a host, links between hosts, as
/// agent::connect_members and remote::PipeEdges have them. One thread.
class Pipes {
 public:
  /// They outlive it, and it outlives what it puts on the agenda.
  Pipes(const ClusterTimes& times, const Paths& paths, Agenda& agenda, Faults& faults)
      : times_(times), paths_(paths), agenda_(agenda), faults_(faults) {}

  /// A host's part of a pipeline.
  struct Part {
    /// Those of its members that live, by stage.
    std::map<std::size_t, std::shared_ptr<Worker>> workers{};
    /// GroupLinked or GroupCut.
    std::function<void(core::AgentEvent)> on_news{};
  };
  /// The host does its part. Workers are to be told of it by the caller.
  PipeNo connect(HostId host, const core::ConnectGroup& group, Part part);
  /// It wants no more of it, and hears no more.
  void leave(HostId host, core::GroupId group);
  /// The worker is dead: its neighbours hear so.
  void close(const Worker& worker);
  /// It has left this pipeline.
  void leave(PipeNo pipe, const Worker& worker);
  /// To the stage behind this one, in order; lost where that has gone.
  void send(PipeNo pipe, std::size_t stage, StageMessage message);

  /// The machine is dead.
  void fall(HostId host, bool silent);
  /// The way over which `from` links with `to`.
  [[nodiscard]] Path& between(HostId from, HostId to);

 private:
  struct Edge {
    HostId from{};
    HostId to{};
    bool up = false;
    std::shared_ptr<Wire> wire{};      ///< None within a host.
    Instant last{};                    ///< Within a host: when what was sent last arrives.
    std::vector<StageMessage> held{};  ///< Until it is up.
  };
  struct HostPart {
    Part part{};
    bool linked = false;
    bool ended = false;
  };
  struct Pipe {
    core::GroupId group{};
    std::vector<Edge> edges{};  ///< From each stage to the next.
    std::map<HostId, HostPart> parts{};
  };

  void link(PipeNo pipe, std::size_t stage);
  void bring_up(PipeNo pipe, std::size_t stage);
  void look_whether_linked(PipeNo pipe, HostId host);
  void end_part(PipeNo pipe, HostId host, bool tells, const std::string& why);
  void deliver(PipeNo pipe, std::size_t stage, const StageMessage& message);
  void forget_ended();

  const ClusterTimes& times_;
  const Paths& paths_;
  Agenda& agenda_;
  Faults& faults_;
  std::map<PipeNo, Pipe> pipes_{};
  std::uint64_t made_ = 0;
  std::map<std::pair<HostId, HostId>, Path> ways_{};
};

}  // namespace heddle::twin
