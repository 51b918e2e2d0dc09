#include <utility>

#include "base/check.h"
#include "engine/pipe.h"
#include "worker/device_executor.h"

/// What DeviceExecutor does with a model that is sharded over several devices.
namespace heddle::worker {

void DeviceExecutor::join(std::unique_ptr<Lockstep> lockstep,
                          std::vector<core::WorkerEvent>& events) {
  const auto found = opened_.find(lockstep->model());
  if (found == opened_.end() || !found->second.registered) {
    return;  // It was closed before the group was formed.
  }
  HEDDLE_CHECK(lockstep_ == nullptr || lockstep_->model() == lockstep->model());
  for (const core::SequenceId id : std::exchange(followed_, {})) {
    remove(id);  // Of a leader that has gone.
  }
  const Result<std::int64_t> left = engine_->pipes().set_share(lockstep->model(), 0);
  HEDDLE_CHECK(left.has_value() && *left == 0);  // Ranks begin alike, with nothing cached.
  const bool whole =
      engine_->image_ready(lockstep->model()) >= described_.at(lockstep->model()).layout.bytes;
  engine_->join_group(lockstep->model(), lockstep->group(), lockstep->meet_peers(device_, whole));
  lockstep_ = std::move(lockstep);
  events.push_back(core::GroupJoined{.model = lockstep_->model(), .leads = lockstep_->leads()});
}

/// The ranks meet. What one of them has reserved beyond the others' it hears of and gives back.
void DeviceExecutor::execute(const core::SizeShare& command,
                             std::vector<core::WorkerEvent>& events) {
  if (lockstep_ == nullptr || lockstep_->model() != command.model) {
    return;  // It was closed.
  }
  const Result<std::int64_t> least = lockstep_->group().least(command.pages);
  if (!least) {
    lost_ = least.error();
    return;
  }
  const Result<std::int64_t> pages = engine_->pipes().set_share(command.model, *least);
  HEDDLE_CHECK(pages.has_value());  // The core's ledger has counted them as free.
  kv_changed_ = true;
  events.push_back(core::ShareSet{.model = command.model, .pages = *pages});
}

Result<void> DeviceExecutor::follow(core::WorkerCommand command,
                                    std::vector<core::WorkerEvent>& told) {
  if (lockstep_ == nullptr || lockstep_->leads()) {
    return {};
  }
  command = lockstep_->named_here(std::move(command));
  if (const auto* size = std::get_if<core::SizeShare>(&command)) {
    told.push_back(core::ShareAsked{.model = size->model, .pages = size->pages});
    return {};
  }
  if (const auto* add = std::get_if<core::AddSequence>(&command)) {
    followed_.insert(add->sequence);
  } else if (const auto* remove = std::get_if<core::RemoveSequence>(&command)) {
    followed_.erase(remove->sequence);
  }
  std::vector<core::WorkerEvent> events;
  const bool changed = kv_changed_;
  await_grammars(command, events);
  const Result<void> done = carry_out(std::move(command), events);
  kv_changed_ = changed;  // The ledger of this device's core has no sequences.
  for (const core::WorkerEvent& event : events) {
    if (const auto* refused = std::get_if<core::SequenceRefused>(&event)) {
      followed_.erase(refused->sequence);
    }
  }
  return done;
}

}  // namespace heddle::worker
