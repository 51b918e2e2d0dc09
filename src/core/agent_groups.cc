#include <algorithm>

#include "core/agent_core_impl.h"

/// Workers that run a model in lockstep: as one they are of use, and as one they end.
namespace heddle::core {

void AgentCore::Impl::on(const FormGroup& form) {
  groups_.push_back(form);
  for (const GroupMember& member : form.members) {
    const WorkerState* worker = live(member.device, member.epoch);
    if (worker == nullptr || worker->life != Life::kUp) {
      end_groups(member.device, member.epoch, true);  // It died while the manager decided.
      return;
    }
  }
  commands_->push_back(ConnectGroup{.members = form.members});
  const GroupMember& leader = form.members.front();
  tell(GroupFormed{.device = leader.device, .epoch = leader.epoch, .model = leader.model});
}

/// A worker is gone: those in lockstep with it wait for it, and could not go on without.
void AgentCore::Impl::end_groups(DeviceId device, WorkerEpoch epoch, bool blameless) {
  const auto lost = [&](const FormGroup& group) {
    return std::any_of(group.members.begin(), group.members.end(), [&](const auto& member) {
      return member.device == device && member.epoch == epoch;
    });
  };
  for (const FormGroup& group : groups_) {
    for (const GroupMember& member : group.members) {
      WorkerState* worker = lost(group) ? live(member.device, member.epoch) : nullptr;
      if (worker != nullptr) {
        doom(*worker,
             {Code::kUnavailable, "a worker that it ran in lockstep with has ended"},
             blameless);
      }
    }
  }
  std::erase_if(groups_, lost);
}

/// The leader has evicted its shard: the others have done all that it told them, and go each by
/// itself.
void AgentCore::Impl::leave_group(DeviceId leader, ModelId model) {
  std::erase_if(groups_, [&](const FormGroup& group) {
    return group.members.front().device == leader && group.members.front().model == model;
  });
}

}  // namespace heddle::core
