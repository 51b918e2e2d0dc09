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
  queue(JoinRanks{.model = model, .leads = true, .others = {followers.begin(), followers.end()}});
}

void Worker::follow(ModelId model, const std::shared_ptr<Worker>& leader) {
  if (alive_) {
    queue(JoinRanks{.model = model, .others = {leader}});
  }
}

void Worker::take_in(const JoinRanks& join) {
  const auto found = models_.find(join.model);
  if (found == models_.end() || found->second.closing || !found->second.opened) {
    return;  // It was closed before the group was formed.
  }
  HEDDLE_CHECK(!ranked_ || ranked_->model == join.model);
  if (ranked_) {
    leave_group();  // Its leader has gone.
  }
  ranked_ = join;
  share_ = std::make_unique<Reserve>(
      join.model, 0, around_.page_count, std::span<const PageId>{}, options_.prefix_cache > 0);
  if (around_.contents != nullptr) {
    share_->kv.watch(*around_.contents, {.device = device(), .epoch = epoch()});
  }
  share_->kv.add_model(join.model, around_.models.at(join.model).model.footprint.kv);
  tell(core::GroupJoined{.model = join.model, .leads = join.leads});
}

/// With nothing in it: its sequences have gone.
void Worker::leave_group() {
  share_->kv.trim(0);
  share_->kv.drop_model(share_->model);
  while (share_->kv.free() > 0) {
    kv_.put(share_->kv.take());
  }
  share_.reset();
  ranked_.reset();
  meeting_.reset();
  held_ = false;
}

// ---- Shares ----

void Worker::perform(const core::SizeShare& command) {
  if (!ranked_ || ranked_->model != command.model) {
    return;  // It was closed.
  }
  meeting_ = Meeting{.least = command.pages, .awaited = ranked_->others.size()};
  for (const std::weak_ptr<Worker>& other : ranked_->others) {
    if (const std::shared_ptr<Worker> there = other.lock()) {
      around_.agenda.at(around_.agenda.now(),
                        [there, leads = ranked_->leads, pages = command.pages] {
                          if (!there->alive_) {
                            return;
                          }
                          if (leads) {
                            there->queue(AskForShare{.pages = pages});
                          } else {
                            there->hear_offer(pages);
                          }
                        });
    }
  }
}

void Worker::take_in(const AskForShare& ask) {
  if (ranked_ && !ranked_->leads) {
    tell(core::ShareAsked{.model = ranked_->model, .pages = ask.pages});
  }
}

/// Of the leader. When all have said what they have, each gets as many as the least.
void Worker::hear_offer(std::int64_t pages) {
  if (!meeting_ || !ranked_ || !ranked_->leads) {
    return;
  }
  meeting_->least = std::min(meeting_->least, pages);
  if (--meeting_->awaited > 0) {
    return;
  }
  set_share(meeting_->least);
}

/// Pages that are in use stay, on all ranks: rank 0 knows which.
void Worker::set_share(std::int64_t pages) {
  KvCount& kv = share_->kv;
  for (; share_->pages < pages; ++share_->pages) {
    kv.put(kv_.take());
  }
  const std::int64_t lacks = share_->pages - pages - kv.free();
  if (lacks > 0) {
    kv.trim(std::max<std::int64_t>(0, kv.counted().cached_pages - lacks));
  }
  for (; share_->pages > pages && kv.free() > 0; --share_->pages) {
    kv_.put(kv.take());
  }
  meeting_.reset();
  if (ranked_->leads) {
    for (const std::weak_ptr<Worker>& other : ranked_->others) {
      const std::shared_ptr<Worker> there = other.lock();
      if (there != nullptr && there->alive_ && there->meeting_) {
        there->set_share(share_->pages);
      }
    }
  }
  tell(core::ShareSet{.model = share_->model, .pages = share_->pages});
  idle_said_ = false;
  at(around_.agenda.now(), [this] { work(); });
}

KvCount& Worker::kv_of(ModelId model) {
  return share_ && share_->model == model ? share_->kv : kv_;
}

core::KvCounted Worker::counted() const {
  core::KvCounted all = kv_.counted();
  if (share_) {
    const core::KvCounted apart = share_->kv.counted();
    for (core::KvHeld& held : all.kv) {
      held.pages = held.model == share_->model ? apart.kv.front().pages : held.pages;
    }
  }
  return all;
}

bool Worker::kv_changed() {
  const bool apart = share_ && share_->kv.changed();
  return kv_.changed() || apart;
}

// ---- Steps ----

bool Worker::runs_group(const policy::StepPlan& plan) const {
  return ranked_ && ranked_->leads && std::ranges::any_of(plan.batches, [&](const auto& batch) {
           return batch.model == ranked_->model;
         });
}

/// How long the others are at steps of their own: the group's begins when all have ended theirs.
Duration Worker::followers_busy() const {
  Duration longest{};
  for (const std::weak_ptr<Worker>& other : ranked_->others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there != nullptr && there->step_) {
      longest = std::max(longest, there->busy_until_ - around_.agenda.now());
    }
  }
  return longest;
}

void Worker::hold_followers() {
  for (const std::weak_ptr<Worker>& other : ranked_->others) {
    if (const std::shared_ptr<Worker> there = other.lock()) {
      there->held_ = there->ranked_.has_value();
    }
  }
}

/// What they have to do they do before the group's next step.
void Worker::release_followers() {
  for (const std::weak_ptr<Worker>& other : ranked_->others) {
    const std::shared_ptr<Worker> there = other.lock();
    if (there != nullptr && std::exchange(there->held_, false) && there->alive_) {
      there->work();
    }
  }
}

}  // namespace heddle::twin
