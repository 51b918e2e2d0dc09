#include <algorithm>

#include "core/agent_core_impl.h"

/// Workers that run a model in lockstep: as one they are of use, and as one they end. Stages of a
/// pipeline may be on other hosts. Of these a host knows no more than that it is connected with
/// them: where that ends, the leader's host ends its workers, as requests are there. Followers
/// hold nothing that cannot be computed again, and leave the pipeline by themselves.
namespace heddle::core {

bool AgentCore::Impl::spans_hosts(const FormGroup& form) const {
  return std::ranges::any_of(form.members, [this](const GroupMember& member) {
    return !workers_.contains(member.device);
  });
}

void AgentCore::Impl::on(const FormGroup& form) {
  const auto shares_shard = [&](const Group& other) {
    return std::ranges::any_of(other.form.members, [&](const GroupMember& member) {
      return workers_.contains(member.device) &&
             std::ranges::find(form.members, member) != form.members.end();
    });
  };
  erase_groups(shares_shard);  // Whoever had it formed is gone.
  groups_.push_back({.form = form});
  for (const GroupMember& member : form.members) {
    const WorkerState* worker = live(member.device, member.epoch);
    const bool up = worker != nullptr && worker->life == Life::kUp;
    if (workers_.contains(member.device) && !up) {
      end_groups(member.device, member.epoch, true);  // It died while the manager decided.
      return;
    }
  }
  commands_->push_back(
      ConnectGroup{.members = form.members, .group = form.group, .hosts = form.hosts});
  if (!spans_hosts(form)) {
    formed(groups_.back());
  }
}

void AgentCore::Impl::formed(Group& group) {
  group.formed = true;
  const GroupMember& leader = group.form.members.front();
  if (workers_.contains(leader.device)) {
    tell(GroupFormed{.device = leader.device,
                     .epoch = leader.epoch,
                     .model = leader.model,
                     .members = group.form.members});
  }
}

void AgentCore::Impl::on(const GroupLinked& linked) {
  for (Group& group : groups_) {
    if (group.form.group == linked.group && !group.formed) {
      formed(group);
    }
  }
}

/// One that never was connected has run nothing: its leader goes like a model whose image failed,
/// and the manager hears why.
void AgentCore::Impl::on(const GroupCut& cut) {
  const auto found = std::ranges::find_if(
      groups_, [&](const Group& group) { return group.form.group == cut.group; });
  if (found == groups_.end()) {
    return;  // The leader has left it, or a worker here has ended.
  }
  const Group group = *found;
  groups_.erase(found);
  const GroupMember& leader = group.form.members.front();
  WorkerState* worker = live(leader.device, leader.epoch);
  if (worker == nullptr) {
    return;
  }
  if (group.formed) {
    end_members(group, {Code::kUnavailable, "its pipeline: " + cut.reason.message}, true);
  } else if (worker->models.contains(leader.model)) {
    worker->operations.push_front(WantedEvict{.order = {.device = leader.device,
                                                        .model = leader.model,
                                                        .basis = {.epoch = leader.epoch},
                                                        .mode = EvictMode::kNow},
                                              .failure = cut.reason});
  }
}

void AgentCore::Impl::end_members(const Group& group, const Error& reason, bool blameless) {
  for (const GroupMember& member : group.form.members) {
    if (WorkerState* worker = live(member.device, member.epoch)) {
      doom(*worker, reason, blameless);
    }
  }
}

/// A worker is gone: those in lockstep with it wait for it, and could not go on without.
void AgentCore::Impl::end_groups(DeviceId device, WorkerEpoch epoch, bool blameless) {
  const auto lost = [&](const Group& group) {
    return std::any_of(
        group.form.members.begin(), group.form.members.end(), [&](const auto& member) {
          return member.device == device && member.epoch == epoch;
        });
  };
  for (const Group& group : groups_) {
    if (lost(group)) {
      end_members(group,
                  {Code::kUnavailable, "a worker that it ran in lockstep with has ended"},
                  blameless);
    }
  }
  erase_groups(lost);
}

/// The leader has evicted its shard: the others have done all that it told them, and go each by
/// itself. So has a stage whose leader is on another host, which nobody here hears of.
void AgentCore::Impl::leave_group(DeviceId device, ModelId model) {
  erase_groups([&](const Group& group) {
    const std::vector<GroupMember>& members = group.form.members;
    const auto end =
        workers_.contains(members.front().device) ? members.begin() + 1 : members.end();
    return std::any_of(members.begin(), end, [&](const GroupMember& member) {
      return member.device == device && member.model == model;
    });
  });
}

/// All its ranks have left it: none of them waits for another.
void AgentCore::Impl::heard(WorkerState& worker, const SteppedBack& stepped) {
  erase_groups([&](const Group& group) {
    const GroupMember& leader = group.form.members.front();
    return leader.device == worker.device.id && leader.model == stepped.model;
  });
}

}  // namespace heddle::core
