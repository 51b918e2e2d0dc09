#include <algorithm>
#include <utility>

#include "base/check.h"
#include "twin/worker.h"

/// What a worker does in lockstep with others, in place of worker/lockstep.h. Rank 0 stands for
/// all: the others have pages for KV as it has, and no time of their own while it runs a step.
namespace heddle::twin {

void Worker::lead(ModelId model,
                  Duration pace_step,
                  Duration pace_token,
                  const std::vector<std::shared_ptr<Worker>>& followers) {
  Model& leading = models_.at(model);
  leading.in_lockstep = true;
  leading.pace_step = pace_step;
  leading.pace_token = pace_token;
  queue(JoinRanks{.model = model, .group = model, .others = {followers.begin(), followers.end()}});
}

void Worker::follow(ModelId model, ModelId group, const std::shared_ptr<Worker>& leader) {
  if (alive_) {
    queue(JoinRanks{.model = model, .group = group, .others = {leader}});
  }
}

void Worker::take_in(const JoinRanks& join) {
  const auto found = models_.find(join.model);
  if (found == models_.end() || found->second.closing || !found->second.opened) {
    return;  // It was closed before the group was formed.
  }
  leave_group(join.model);  // Where its leader has gone.
  Rank& rank = ranks_[join.model];
  rank.joined = join;
  rank.share = std::make_unique<Reserve>(
      join.model, 0, around_.page_count, std::span<const PageId>{}, options_.prefix_cache > 0);
  KvCount& kv = rank.share->kv;
  if (around_.contents != nullptr) {
    kv.watch(*around_.contents, {.device = device(), .epoch = epoch()});
  }
  kv.add_model(join.model, around_.models.at(join.model).model.footprint.kv);
  tell(core::GroupJoined{.model = join.model, .leads = join.leads()});
}

/// With nothing in it: its sequences have gone. Nothing where the model is in none.
void Worker::leave_group(ModelId model) {
  const auto found = ranks_.find(model);
  if (found == ranks_.end()) {
    return;
  }
  KvCount& kv = found->second.share->kv;
  kv.trim(0);
  kv.drop_model(model);
  while (kv.free() > 0) {
    kv_.put(kv.take());
  }
  ranks_.erase(found);
  if (meeting_ && meeting_->model == model) {
    meeting_.reset();
  }
  held_ = held_ && !ranks_.empty();
}

/// Its part in the group that another leads for this shard; null: it has none.
Worker::Rank* Worker::rank_in(ModelId group) {
  for (auto& [model, rank] : ranks_) {
    if (rank.joined.group == group) {
      return &rank;
    }
  }
  return nullptr;
}

// ---- Shares ----

void Worker::perform(const core::SizeShare& command) {
  const auto found = ranks_.find(command.model);
  if (found == ranks_.end()) {
    return;  // It was closed.
  }
  const JoinRanks& joined = found->second.joined;
  HEDDLE_CHECK(!meeting_);
  meeting_ =
      Meeting{.model = command.model, .least = command.pages, .awaited = joined.others.size()};
  for (const std::weak_ptr<Worker>& other : joined.others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there == nullptr) {
      continue;
    }
    around_.agenda.at(around_.agenda.now(),
                      [there, leads = joined.leads(), group = joined.group, pages = command.pages] {
                        if (!there->alive_) {
                          return;
                        }
                        if (leads) {
                          there->queue(AskForShare{.group = group, .pages = pages});
                        } else {
                          there->hear_offer(group, pages);
                        }
                      });
  }
}

void Worker::take_in(const AskForShare& ask) {
  if (const Rank* rank = rank_in(ask.group)) {
    tell(core::ShareAsked{.model = rank->joined.model, .pages = ask.pages});
  }
}

/// Of the leader. When all have said what they have, each gets as many as the least.
void Worker::hear_offer(ModelId group, std::int64_t pages) {
  if (!meeting_ || meeting_->model != group) {
    return;
  }
  meeting_->least = std::min(meeting_->least, pages);
  if (--meeting_->awaited == 0) {
    set_share(ranks_.at(group), meeting_->least);
  }
}

/// Pages that are in use stay, on all ranks: rank 0 knows which.
void Worker::set_share(Rank& rank, std::int64_t pages) {
  Reserve& share = *rank.share;
  KvCount& kv = share.kv;
  for (; share.pages < pages; ++share.pages) {
    kv.put(kv_.take());
  }
  const std::int64_t lacks = share.pages - pages - kv.free();
  if (lacks > 0) {
    kv.trim(std::max<std::int64_t>(0, kv.counted().cached_pages - lacks));
  }
  for (; share.pages > pages && kv.free() > 0; --share.pages) {
    kv_.put(kv.take());
  }
  meeting_.reset();
  if (rank.joined.leads()) {
    for (const std::weak_ptr<Worker>& other : rank.joined.others) {
      const std::shared_ptr<Worker> there = other.lock();
      if (there != nullptr && there->alive_ && there->meeting_) {
        there->set_share(*there->rank_in(rank.joined.group), share.pages);
      }
    }
  }
  tell(core::ShareSet{.model = share.model, .pages = share.pages});
  idle_said_ = false;
  at(around_.agenda.now(), [this] { work(); });
}

// ---- Who leaves ----

/// Of the leader. It goes last, when all others have gone.
void Worker::perform(const core::LeaveRanks& command) {
  const auto found = ranks_.find(command.model);
  if (found == ranks_.end()) {
    return;  // It was closed.
  }
  const JoinRanks& joined = found->second.joined;
  HEDDLE_CHECK(!meeting_ && joined.leads());
  meeting_ = Meeting{.model = command.model, .awaited = joined.others.size()};
  for (const std::weak_ptr<Worker>& other : joined.others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there != nullptr && there->alive_) {
      there->queue(AskToLeave{.group = joined.group});
    }
  }
}

void Worker::take_in(const AskToLeave& ask) {
  const Rank* const rank = rank_in(ask.group);
  if (rank == nullptr) {
    return;  // It was closed; the leader, too, is about to be.
  }
  const JoinRanks joined = rank->joined;
  leave_group(joined.model);
  if (const std::shared_ptr<Worker> leader = joined.others.front().lock()) {
    around_.agenda.at(around_.agenda.now(), [leader, group = joined.group] {
      if (leader->alive_) {
        leader->hear_left(group);
      }
    });
  }
  tell(core::RanksLeft{.model = joined.model});
}

void Worker::hear_left(ModelId group) {
  if (!meeting_ || meeting_->model != group || --meeting_->awaited > 0) {
    return;
  }
  leave_group(group);
  models_.at(group).in_lockstep = false;
  tell(core::RanksLeft{.model = group});
  idle_said_ = false;
  at(around_.agenda.now(), [this] { work(); });
}

// ---- What there is ----

KvCount& Worker::kv_of(ModelId model) {
  const auto rank = ranks_.find(model);
  return rank == ranks_.end() ? kv_ : rank->second.share->kv;
}

core::KvCounted Worker::counted() const {
  core::KvCounted all = kv_.counted();
  for (core::KvHeld& held : all.kv) {
    if (const auto rank = ranks_.find(held.model); rank != ranks_.end()) {
      held.pages = rank->second.share->kv.counted().kv.front().pages;
    }
  }
  return all;
}

bool Worker::kv_changed() {
  bool changed = kv_.changed();
  for (auto& [model, rank] : ranks_) {
    changed = rank.share->kv.changed() || changed;
  }
  return changed;
}

// ---- Steps ----

/// Its part in the group that the step runs and it leads; null: there is none. A step that ran two
/// groups could have ranks wait for each other for ever.
const Worker::Rank* Worker::led_in(const policy::StepPlan& plan) const {
  const Rank* leader = nullptr;
  for (const policy::ModelBatch& batch : plan.batches) {
    const auto rank = ranks_.find(batch.model);
    if (rank != ranks_.end() && rank->second.joined.leads()) {
      HEDDLE_CHECK(leader == nullptr);
      leader = &rank->second;
    }
  }
  return leader;
}

/// How long the others are at steps of their own: the group's begins when all have ended theirs.
Duration Worker::followers_busy(const Rank& leader) const {
  Duration longest{};
  for (const std::weak_ptr<Worker>& other : leader.joined.others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there != nullptr && there->step_) {
      longest = std::max(longest, there->busy_until_ - around_.agenda.now());
    }
  }
  return longest;
}

/// Nobody else holds them: what they follow has one leader.
void Worker::hold_followers(const Rank& leader) {
  for (const std::weak_ptr<Worker>& other : leader.joined.others) {
    if (const std::shared_ptr<Worker> there = other.lock()) {
      HEDDLE_CHECK(!there->held_ &&
                   (!there->step_ || there->led_in(there->step_->plan) == nullptr));
      there->held_ = there->rank_in(leader.joined.group) != nullptr;
    }
  }
}

/// What they have to do they do before the group's next step.
void Worker::release_followers(const Rank& leader) {
  for (const std::weak_ptr<Worker>& other : leader.joined.others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there != nullptr && std::exchange(there->held_, false) && there->alive_) {
      there->work();
    }
  }
}

}  // namespace heddle::twin
