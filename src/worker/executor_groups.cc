#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/pipe.h"
#include "worker/device_executor.h"

/// What DeviceExecutor does with models that are sharded over several devices.
namespace heddle::worker {

void DeviceExecutor::join(std::unique_ptr<Lockstep> lockstep,
                          std::vector<core::WorkerEvent>& events) {
  const ModelId shard = lockstep->model();
  const auto found = opened_.find(shard);
  if (found == opened_.end() || !found->second.registered) {
    return;  // It was closed before the group was formed.
  }
  const bool leads = lockstep->leads();
  HEDDLE_CHECK(std::ranges::all_of(ranks_, [&](const auto& rank) {
    return rank.first == shard || rank.second.lockstep->leads() == leads;
  }));
  forget_followed(shard);  // Of a leader that has gone.
  const Result<std::int64_t> left = engine_->pipes().set_share(shard, 0);
  HEDDLE_CHECK(left.has_value() && *left == 0);  // Ranks begin alike, with nothing cached.
  engine_->set_group(shard, &lockstep->group());
  ranks_[shard] = {.lockstep = std::move(lockstep)};
  events.push_back(core::GroupJoined{.model = shard, .leads = leads});
}

/// When they first meet, ranks on GPUs learn how they exchange. Not before: who waits for the
/// others waits at a place among rank 0's commands, as rank 0 may be at another group's step.
void DeviceExecutor::meet_ranks(Lockstep& lockstep) {
  const ModelId shard = lockstep.model();
  const bool whole = engine_->image_ready(shard) >= described_.at(shard).layout.bytes;
  if (const ops::PeerArea* peers = lockstep.meet_peers(device_, whole)) {
    engine_->set_group(shard, &lockstep.group(), peers);
  }
}

/// The ranks meet. What one of them has reserved beyond the others' it hears of and gives back.
void DeviceExecutor::execute(const core::SizeShare& command,
                             std::vector<core::WorkerEvent>& events) {
  const auto rank = ranks_.find(command.model);
  if (rank == ranks_.end()) {
    return;  // It was closed.
  }
  Lockstep& lockstep = *rank->second.lockstep;
  meet_ranks(lockstep);
  const Result<std::int64_t> least = lockstep.group().least(command.pages);
  if (!least) {
    lost_ = least.error();
    return;
  }
  const Result<std::int64_t> pages = engine_->pipes().set_share(command.model, *least);
  HEDDLE_CHECK(pages.has_value());  // The core's ledger has counted them as free.
  kv_changed_ = true;
  events.push_back(core::ShareSet{.model = command.model, .pages = *pages});
}

/// The ranks meet once more, when all have given up what they had for the group.
void DeviceExecutor::execute(const core::LeaveRanks& command,
                             std::vector<core::WorkerEvent>& events) {
  const auto rank = ranks_.find(command.model);
  if (rank == ranks_.end()) {
    return;  // It was closed.
  }
  forget_followed(command.model);
  const Result<std::int64_t> left = engine_->pipes().set_share(command.model, 0);
  HEDDLE_CHECK(left.has_value() && *left == 0);
  if (const Result<void> parted = rank->second.lockstep->part(); !parted) {
    lost_ = parted.error();
    return;
  }
  engine_->set_group(command.model, nullptr);
  ranks_.erase(rank);
  kv_changed_ = true;
  events.push_back(core::RanksLeft{.model = command.model});
}

Result<void> DeviceExecutor::follow(ModelId shard,
                                    core::WorkerCommand command,
                                    std::vector<core::WorkerEvent>& told) {
  const auto rank = ranks_.find(shard);
  if (rank == ranks_.end() || rank->second.lockstep->leads()) {
    return {};
  }
  command = rank->second.lockstep->named_here(std::move(command));
  if (const auto* size = std::get_if<core::SizeShare>(&command)) {
    told.push_back(core::ShareAsked{.model = size->model, .pages = size->pages});
    return {};
  }
  if (std::holds_alternative<core::LeaveRanks>(command)) {
    return carry_out(std::move(command), told);
  }
  std::set<core::SequenceId>& followed = rank->second.followed;
  if (const auto* add = std::get_if<core::AddSequence>(&command)) {
    followed.insert(add->sequence);
  } else if (const auto* remove = std::get_if<core::RemoveSequence>(&command)) {
    followed.erase(remove->sequence);
  }
  std::vector<core::WorkerEvent> events;
  const bool changed = kv_changed_;
  await_grammars(command, events);
  const Result<void> done = carry_out(std::move(command), events);
  kv_changed_ = changed;  // The ledger of this device's core has no sequences.
  for (const core::WorkerEvent& event : events) {
    if (const auto* refused = std::get_if<core::SequenceRefused>(&event)) {
      followed.erase(refused->sequence);
    }
  }
  return done;
}

}  // namespace heddle::worker
