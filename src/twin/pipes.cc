#include "twin/pipes.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "twin/worker.h"

namespace heddle::twin {

PipeNo Pipes::connect(HostId host, const core::ConnectGroup& group, Part part) {
  const auto known = std::ranges::find_if(pipes_, [&](const auto& entry) {
    return entry.second.group == group.group && !entry.second.parts.contains(host);
  });
  const PipeNo no = known == pipes_.end() ? PipeNo(++made_) : known->first;
  Pipe& pipe = pipes_[no];
  if (known == pipes_.end()) {
    pipe.group = group.group;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const core::GroupMember& next = group.members[(i + 1) % group.members.size()];
      pipe.edges.push_back({.from = host_of(group.members[i].device), .to = host_of(next.device)});
    }
  }
  pipe.parts[host].part = std::move(part);
  for (std::size_t stage = 0; stage < pipe.edges.size(); ++stage) {
    Edge& edge = pipe.edges[stage];
    if (edge.from == host && edge.to == host) {
      edge.up = true;
    } else if ((edge.from == host && pipe.parts.contains(edge.to)) ||
               (edge.to == host && pipe.parts.contains(edge.from))) {
      link(no, stage);
    }
  }
  agenda_.after(times_.patience, [this, no, host] {
    const auto found = pipes_.find(no);
    if (found != pipes_.end() && !found->second.parts.at(host).linked &&
        std::ranges::any_of(found->second.edges, [host](const Edge& edge) {
          return (edge.from == host || edge.to == host) && !edge.up;
        })) {
      end_part(no, host, true, "another host has not done its part");
    }
  });
  return no;
}

/// Its hosts link, as soon as they can.
void Pipes::link(PipeNo no, std::size_t stage) {
  agenda_.after(2 * times_.hop + faults_.some(times_.again), [this, no, stage] {
    const auto found = pipes_.find(no);
    if (found == pipes_.end()) {
      return;
    }
    const Edge& edge = found->second.edges[stage];
    if (found->second.parts.at(edge.from).ended || found->second.parts.at(edge.to).ended) {
      return;
    }
    if (between(edge.from, edge.to).clear()) {
      bring_up(no, stage);
    } else {
      link(no, stage);
    }
  });
}

void Pipes::bring_up(PipeNo no, std::size_t stage) {
  Edge& edge = pipes_.at(no).edges[stage];
  edge.wire = between(edge.from, edge.to).connect();
  edge.up = true;
  const std::string why = "its link with another stage has ended";
  edge.wire->start(Side::kCaller, {.on_closed = [this, no, host = edge.from, why] {
                     end_part(no, host, true, why);
                   }});
  edge.wire->start(
      Side::kCallee,
      {.on_message =
           [this, no, stage](const Message& message) {
             deliver(no, stage, std::get<StageMessage>(message));
           },
       .on_closed = [this, no, host = edge.to, why] { end_part(no, host, true, why); }});
  for (StageMessage& message : std::exchange(edge.held, {})) {
    edge.wire->send(Side::kCaller, std::move(message));
  }
  look_whether_linked(no, edge.from);
  look_whether_linked(no, edge.to);
}

void Pipes::look_whether_linked(PipeNo no, HostId host) {
  Pipe& pipe = pipes_.at(no);
  HostPart& part = pipe.parts.at(host);
  const bool all_up = std::ranges::all_of(pipe.edges, [host](const Edge& edge) {
    return (edge.from != host && edge.to != host) || edge.up;
  });
  if (all_up && !part.ended && !std::exchange(part.linked, true)) {
    part.part.on_news(core::GroupLinked{.group = pipe.group});
  }
}

/// The host's links with the others end, and so do the sockets of its workers.
void Pipes::end_part(PipeNo no, HostId host, bool tells, const std::string& why) {
  const auto found = pipes_.find(no);
  if (found == pipes_.end()) {
    return;
  }
  HostPart& part = found->second.parts.at(host);
  if (std::exchange(part.ended, true)) {
    return;
  }
  for (const auto& [stage, worker] : part.part.workers) {
    agenda_.after(paths_.hop, [no, worker] { worker->lose_pipe(no); });
  }
  if (tells) {
    part.part.on_news(
        core::GroupCut{.group = found->second.group, .reason = {Code::kUnavailable, why}});
  }
  for (Edge& edge : found->second.edges) {
    const std::shared_ptr<Wire> wire = edge.wire;
    if (wire && (edge.from == host || edge.to == host)) {
      wire->close(edge.from == host ? Side::kCaller : Side::kCallee);
    }
  }
  agenda_.after({}, [this] { forget_ended(); });
}

void Pipes::forget_ended() {
  std::erase_if(pipes_, [](const auto& entry) {
    return std::ranges::all_of(entry.second.parts,
                               [](const auto& part) { return part.second.ended; });
  });
}

void Pipes::leave(HostId host, core::GroupId group) {
  for (const auto& [no, pipe] : pipes_) {
    if (pipe.group == group && pipe.parts.contains(host)) {
      end_part(no, host, false, {});
    }
  }
}

void Pipes::close(const Worker& worker) {
  for (const auto& [no, pipe] : pipes_) {
    leave(no, worker);
  }
}

void Pipes::leave(PipeNo no, const Worker& worker) {
  const auto found = pipes_.find(no);
  if (found == pipes_.end()) {
    return;
  }
  for (const auto& [host, part] : found->second.parts) {
    const bool its = std::ranges::any_of(
        part.part.workers, [&](const auto& entry) { return entry.second.get() == &worker; });
    if (its) {
      end_part(no, host, false, {});
    }
  }
}

void Pipes::send(PipeNo no, std::size_t stage, StageMessage message) {
  const auto found = pipes_.find(no);
  if (found == pipes_.end()) {
    return;
  }
  Edge& edge = found->second.edges.at(stage);
  if (found->second.parts.at(edge.from).ended) {
    return;
  }
  if (!edge.up) {
    edge.held.push_back(std::move(message));
  } else if (edge.wire) {
    edge.wire->send(Side::kCaller, std::move(message));
  } else {
    edge.last = std::max(edge.last, agenda_.now() + faults_.some(faults_.late().hop));
    agenda_.at(edge.last,
               [this, no, stage, message = std::move(message)] { deliver(no, stage, message); });
  }
}

/// From where the edge ends to the worker there.
void Pipes::deliver(PipeNo no, std::size_t stage, const StageMessage& message) {
  const auto found = pipes_.find(no);
  if (found == pipes_.end()) {
    return;
  }
  const Pipe& pipe = found->second;
  const HostPart& part = pipe.parts.at(pipe.edges[stage].to);
  const auto worker = part.part.workers.find((stage + 1) % pipe.edges.size());
  if (!part.ended && worker != part.part.workers.end()) {
    agenda_.after(paths_.hop, [no, to = worker->second, message] { to->hear_stage(no, message); });
  }
}

void Pipes::fall(HostId host, bool silent) {
  for (auto& [no, pipe] : pipes_) {
    if (const auto part = pipe.parts.find(host); part != pipe.parts.end()) {
      part->second.ended = true;
    }
  }
  for (auto& [ends, way] : ways_) {
    if (ends.first == host) {
      way.fall(Side::kCaller, silent);
    } else if (ends.second == host) {
      way.fall(Side::kCallee, silent);
    }
  }
  forget_ended();
}

Path& Pipes::between(HostId from, HostId to) {
  return ways_.try_emplace({from, to}, times_, agenda_, faults_).first->second;
}

}  // namespace heddle::twin
