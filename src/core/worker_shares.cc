#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/worker_core_impl.h"
#include "policy/group_share.h"

/// KV that is apart from what the models of a device share, and how ranks of a group keep theirs
/// alike (docs/contracts/groups.md).
namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// A share that could not grow is tried again after so long, or when the manager says so.
constexpr Duration kGrowsAgain = 50ms;
/// What a share needed is looked back on for so long before it shrinks.
constexpr Duration kMeasured = 10s;
constexpr std::int64_t kEnough = std::numeric_limits<std::int64_t>::max() / 2;

}  // namespace

// ---- What is apart ----

/// There are as many free pages.
void WorkerCore::Impl::set_apart(ModelId id, Resident& model, std::int64_t pages) {
  if (!model.apart && pages > 0) {
    const ledger::Demand none{.pool = pool_};
    model.apart = *ledger_.reserve(ledger::LeaseKind::kShardPipe, {.model = id}, {&none, 1});
  }
  if (model.apart) {
    move_pages(*model.apart, std::exchange(model.apart_pages, pages), pages);
    residency_changed_ = true;
  }
  if (pages == 0 && model.apart) {
    ledger_.release(*model.apart);
    model.apart.reset();
  }
}

/// With what it has, and what is cached of others.
std::int64_t WorkerCore::Impl::can_have_apart(const Resident& model) const {
  return model.apart_pages + ledger_.usage(pool_).free + cached_pages_;
}

bool WorkerCore::Impl::is_apart(ModelId id) const {
  return models_.at(id).share.has_value();
}

// ---- All ranks ----

void WorkerCore::Impl::on(const GroupJoined& joined) {
  const auto found = models_.find(joined.model);
  if (found == models_.end() || found->second.stage != Stage::kOpen) {
    return;  // It was closed meanwhile.
  }
  HEDDLE_CHECK(sequences_.count(joined.model) == 0);
  set_apart(joined.model, found->second, 0);  // Of a group before this one.
  found->second.steps_back = false;
  found->second.share = GroupShare{.leads = joined.leads, .measured = now_};
  residency_changed_ = true;  // What others lack here could not be had of a group to be formed.
}

/// Reserves so many pages, or as many as can be had, and says so to the other ranks.
void WorkerCore::Impl::offer(ModelId id, Resident& model, std::int64_t pages) {
  const std::int64_t offered = std::min(pages, can_have_apart(model));
  const std::int64_t more = offered - model.apart_pages;
  const std::int64_t free = ledger_.usage(pool_).free;
  if (more > free) {
    trim_cached(cached_pages_ - (more - free), ledger::DropReason::kLoad);
  }
  if (more > 0) {
    set_apart(id, model, offered);
  }
  model.share->sizes = true;
  act(SizeShare{.model = id, .pages = offered});
}

/// Whoever leads waits for the answer: one that is on its way out offers nothing.
void WorkerCore::Impl::on(const ShareAsked& asked) {
  const auto found = models_.find(asked.model);
  if (found == models_.end() || !found->second.share) {
    act(SizeShare{.model = asked.model});
    return;
  }
  offer(asked.model, found->second, asked.pages);
}

void WorkerCore::Impl::on(const ShareSet& set) {
  const auto found = models_.find(set.model);
  if (found == models_.end() || !found->second.share) {
    return;
  }
  Resident& model = found->second;
  GroupShare& share = *model.share;
  share.sizes = false;
  set_apart(set.model, model, set.pages);
  if (set.pages > share.had) {
    share.starved = share.crowded = share.stalled = false;
  }
  if (share.leads && set.pages < share.asked && share.asked > share.had) {
    could_not_grow(set.model, model);
  }
}

void WorkerCore::Impl::on(const RanksLeft& left) {
  const auto found = models_.find(left.model);
  if (found == models_.end() || !found->second.share) {
    return;
  }
  const bool led = found->second.share->leads;
  set_apart(left.model, found->second, 0);
  found->second.share.reset();
  memory_came_free();
  if (led) {
    say(SteppedBack{.model = left.model});
  }
}

// ---- Rank 0 ----

void WorkerCore::Impl::on(const StepBack& back) {
  const auto found = models_.find(back.model);
  if (found == models_.end() || found->second.stage != Stage::kOpen) {
    return;  // It goes.
  }
  found->second.steps_back = true;
  if (!found->second.share) {
    say(SteppedBack{.model = back.model});
  }
}

void WorkerCore::Impl::on(const FitShare& fit) {
  const auto found = models_.find(fit.model);
  if (found == models_.end() || !found->second.share) {
    return;
  }
  GroupShare& share = *found->second.share;
  if (fit.idle) {
    share.idle = true;
  } else {
    share.grows_at = now_;
  }
}

/// What its sequences may come to need at prompt and expected output, those that wait too.
std::int64_t WorkerCore::Impl::share_need(ModelId id, const Resident& model) const {
  const policy::AdmissionModel own{
      .model = id, .kv = model.footprint.kv, .pages_used = model.share->used};
  policy::AdmissionRoom room({}, {&own, 1}, kEnough);
  for (const policy::AdmissionView& view : sequences_.admission_views()) {
    if (view.model == id) {
      room.force(view);
    }
  }
  return std::max(kEnough - room.left(), model.share->used);
}

/// A group's ranks are about to meet.
bool WorkerCore::Impl::sizes_share() const {
  return std::ranges::any_of(models_, [](const auto& entry) {
    const Resident& model = entry.second;
    return model.share && model.share->sizes && model.stage == Stage::kOpen;
  });
}

/// One group at a time, and nothing else until the ranks have met: true.
bool WorkerCore::Impl::tend_shares() {
  if (sizes_share()) {
    return true;
  }
  for (auto& [id, model] : models_) {
    const bool leads = model.share && model.share->leads && model.stage == Stage::kOpen;
    if (leads && tend_share(id, model)) {
      return true;
    }
  }
  return false;
}

/// True where all ranks give the share another size, or leave: until that is done nothing else is.
bool WorkerCore::Impl::tend_share(ModelId id, Resident& model) {
  GroupShare& share = *model.share;
  if (model.steps_back && sequences_.count(id) == 0) {
    share.sizes = true;
    act(LeaveRanks{.model = id});
    return true;
  }
  const std::int64_t least = model.footprint.min_kv_pages;
  share.had = model.apart_pages;
  std::int64_t need = share_need(id, model);
  share.most = std::max(share.most, need);
  const bool lacks = share.starved || share.stalled;
  if (need > share.had || lacks) {
    need = std::max(need, share.had + (lacks ? 1 : 0));
    share.asked = policy::share_to_hold(need, least);
    if (now_ >= share.grows_at && can_have_apart(model) > share.had) {
      offer(id, model, share.asked);
      return true;
    }
    could_not_grow(id, model);
    return false;
  }
  const bool looks = now_ - share.measured >= kMeasured;
  const std::int64_t most = share.idle ? need : share.most;
  const bool gives = (share.idle && share.had > policy::share_to_hold(most, least)) ||
                     (looks && policy::share_too_large(share.had, most, least));
  share.idle = false;
  if (looks || gives) {
    share.measured = now_;
    share.most = need;
  }
  if (gives) {
    share.asked = policy::share_to_hold(most, least);
    offer(id, model, share.asked);
  }
  return gives;
}

/// Of the groups that could run in the next step one does, each in its turn: what ranks of a step
/// wait for is then one group's alone, and comes to all of them in the order of this device.
void WorkerCore::Impl::choose_group(std::vector<policy::SequenceView>& views) const {
  const GroupShare* next = nullptr;
  for (const policy::SequenceView& view : views) {
    const auto& share = models_.at(view.model).share;
    if (share && (next == nullptr || share->turn < next->turn)) {
      next = &*share;
    }
  }
  std::erase_if(views, [&](const policy::SequenceView& view) {
    const auto& share = models_.at(view.model).share;
    return share && &*share != next;
  });
}

/// The step that begins is the turn of the group that it runs.
void WorkerCore::Impl::note_group_step() {
  for (const policy::ModelBatch& batch : plan_.batches) {
    if (auto& share = models_.at(batch.model).share) {
      share->turn = ++group_steps_;
    }
  }
}

/// Some rank has no more. Who found no page has its own group to ask.
void WorkerCore::Impl::could_not_grow(ModelId id, Resident& model) {
  GroupShare& share = *model.share;
  if (now_ >= share.grows_at) {
    share.grows_at = now_ + kGrowsAgain;
    counts_changed_ = true;
  }
  if (std::exchange(share.starved, false)) {
    relieve_share(id, model);
  }
}

/// A sequence of the group is preempted, or else the manager has to make room.
void WorkerCore::Impl::relieve_share(ModelId id, Resident& model) {
  GroupShare& share = *model.share;
  const Sequence* oldest = oldest_of(id);
  if (oldest == nullptr) {
    return;  // Whoever found no page has gone meanwhile.
  }
  share.crowded = true;
  std::vector<policy::AdmissionView> views = sequences_.admission_views();
  std::erase_if(views, [&](const policy::AdmissionView& view) { return view.model != id; });
  if (const auto victim = policy::choose_preemption(views)) {
    preempt(*victim);
    return;
  }
  if (share.ran) {
    return;  // The others go on; when one ends there are pages.
  }
  if (oldest->computed > 0 && !oldest->packed && pages_short(*oldest) <= 0) {
    act(PreemptSequence{.sequence = oldest->id});
    sequences_.pack(oldest->id);
    settle_leases(id);
    return;
  }
  share.stalled = true;
  residency_changed_ = true;
}

const Sequence* WorkerCore::Impl::oldest_of(ModelId id) const {
  const Sequence* oldest = nullptr;
  for (const auto& [name, sequence] : sequences_.all()) {
    if (sequence.admitted && sequence.model == id &&
        (oldest == nullptr ||
         std::pair(sequence.arrived, name) < std::pair(oldest->arrived, oldest->id))) {
      oldest = &sequence;
    }
  }
  return oldest;
}

// ---- What the models share, beside that ----

/// The oldest admitted sequence of those that take pages of the device.
const Sequence* WorkerCore::Impl::oldest_common() const {
  const Sequence* oldest = nullptr;
  for (const auto& [id, model] : models_) {
    const Sequence* own = model.share ? nullptr : oldest_of(id);
    if (own != nullptr && (oldest == nullptr || std::pair(own->arrived, own->id) <
                                                    std::pair(oldest->arrived, oldest->id))) {
      oldest = own;
    }
  }
  return oldest;
}

std::vector<policy::AdmissionView> WorkerCore::Impl::common_views() const {
  std::vector<policy::AdmissionView> views = sequences_.admission_views();
  std::erase_if(views, [this](const policy::AdmissionView& view) { return is_apart(view.model); });
  return views;
}

std::optional<ModelId> WorkerCore::Impl::stalled_share() const {
  for (const auto& [id, model] : models_) {
    if (model.share && model.share->stalled && oldest_of(id) != nullptr) {
      return id;
    }
  }
  return std::nullopt;
}

/// Of a group whose share cannot grow as far as its sequences need; of several each in its turn.
void WorkerCore::Impl::tell_share_shortage(DeviceReport& report) const {
  const auto after_told = [this](ModelId id) { return std::pair(id <= told_short_, id); };
  for (const auto& [id, model] : models_) {
    if (!model.share || !model.share->leads || sequences_.count(id) == 0) {
      continue;
    }
    const std::int64_t lacks = share_need(id, model) - model.apart_pages;
    const bool next = report.short_pages == 0 || after_told(id) < after_told(report.short_model);
    if (lacks > 0 && next) {
      report.short_sequences =
          std::max<std::int64_t>(1, sequences_.count(id) - sequences_.count_admitted(id));
      report.short_pages = lacks;
      report.short_model = id;
    }
  }
}

}  // namespace heddle::core
