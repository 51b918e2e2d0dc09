#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/worker_core_impl.h"

/// The first positions of decoding sequences go to pages of another device where this one lacks
/// memory, and come back where that one wants them (WEAVER; docs/contracts/guests.md). All that
/// moves does so between steps.
namespace heddle::core {
namespace {

/// Of averages, the newest value's part is one in so many.
constexpr std::int64_t kNewest = 8;

}  // namespace

void WorkerCore::Impl::on(const LendGuests& lend) {
  const auto found = models_.find(lend.model);
  if (found == models_.end() || found->second.stage != Stage::kOpen || found->second.draining) {
    say(GuestsReturned{.model = lend.model, .pages = lend.pages});
    return;
  }
  found->second.lent_pages += std::ssize(lend.pages);
  act(TakeGuestPages{.model = lend.model, .pages = lend.pages});
  crowded_ = stalled_ = false;
  residency_changed_ = true;
}

void WorkerCore::Impl::on(const RecallGuests& recall) {
  const auto found = models_.find(recall.model);
  if (found != models_.end()) {
    Resident& model = found->second;
    model.recalled = std::min(model.recalled + recall.count, model.lent_pages);
  }
}

void WorkerCore::Impl::on(const GuestsMoved& moved) {
  on(moved.counted);
  const Sequence* sequence = sequences_.find(moved.sequence);
  if (sequence == nullptr) {
    return;
  }
  sequences_.set_away(moved.sequence, moved.tokens);
  counts_changed_ = true;
  if (moved.tokens > 0 && models_.at(sequence->model).recalled > 0) {
    preempt(moved.sequence);  // There was no room at home after all.
    crowded_ = stalled_ = false;
  }
}

/// Before a step: true where KV moves, and the step is to be planned once that is counted.
bool WorkerCore::Impl::tend_guests() {
  bool moves = false;
  for (auto& [id, model] : models_) {
    if (model.lent_pages > 0 && !moves) {
      moves = model.recalled > 0 ? bring_guests_home(id, model) : move_guests_out(id, model);
    }
  }
  return moves;
}

/// What is recalled goes back as far as it is empty; for the rest, the newest of the sequences on
/// it moves home, or is computed again.
bool WorkerCore::Impl::bring_guests_home(ModelId id, Resident& model) {
  return_guests(id, model, std::min(model.recalled, model.lent_pages - model.guest_pages));
  if (model.recalled == 0) {
    return false;
  }
  const Sequence* newest = nullptr;
  for (const auto& [sequence_id, sequence] : sequences_.all()) {
    if (sequence.model == id && sequence.away > 0 &&
        (newest == nullptr || newest->arrived <= sequence.arrived)) {
      newest = &sequence;
    }
  }
  if (newest == nullptr) {
    return false;  // They have ended, and what they leave is about to be counted.
  }
  const std::int64_t need = policy::kv_pages(model.footprint.kv, {&newest->away, 1});
  const std::int64_t free = ledger_.usage(pool_).free;
  if (need <= free + cached_pages_) {
    if (need > free) {
      trim_cached(cached_pages_ - (need - free), ledger::DropReason::kKv);
    }
    act(MoveHome{.sequence = newest->id});
    return true;
  }
  const auto other =
      newest == oldest_common() ? policy::choose_preemption(common_views()) : std::nullopt;
  preempt(other.value_or(newest->id));
  crowded_ = stalled_ = false;  // It is for the host's sake, and leaves room.
  return true;
}

void WorkerCore::Impl::return_guests(ModelId id, Resident& model, std::int64_t count) {
  if (count <= 0) {
    return;
  }
  act(ReturnGuestPages{.model = id, .count = count});
  model.lent_pages -= count;
  model.recalled -= std::min(model.recalled, count);
  residency_changed_ = true;
}

/// One after the other, as each is answered by what there is of KV then.
bool WorkerCore::Impl::move_guests_out(ModelId id, const Resident& model) {
  const std::vector<policy::WeaveMove> moves = guest_moves(id, model);
  if (!moves.empty()) {
    act(MoveOut{.sequence = moves.front().sequence, .tokens = moves.front().tokens});
  }
  return !moves.empty();
}

std::vector<policy::WeaveMove> WorkerCore::Impl::guest_moves(ModelId id,
                                                             const Resident& model) const {
  DeviceReport shortage;
  tell_shortage(shortage);
  const std::int64_t free = ledger_.usage(pool_).free + cached_pages_;
  const std::int64_t pages =
      std::max(shortage.short_pages, kv_pages_total() / policy::kShortBelow - free);
  if (pages <= 0 || model.lent_pages <= model.guest_pages) {
    return {};
  }
  std::vector<policy::KvGroup> whole;
  for (const policy::KvGroup& group : model.footprint.kv) {
    if (group.window == 0) {
      whole.push_back(group);
    }
  }
  std::vector<policy::WeaveSequence> decoding;
  for (const auto& [sequence_id, sequence] : sequences_.all()) {
    if (sequence.model == id && sequence.admitted && sequence.tokens - sequence.computed == 1) {
      decoding.push_back({.id = sequence_id,
                          .computed = sequence.computed,
                          .away = sequence.away,
                          .settled = sequence.computed < sequence.tried + policy::kFewestMoved});
    }
  }
  constexpr std::int64_t kAny = std::int64_t{1} << 32;
  return policy::choose_moves(
      decoding,
      policy::tokens_that_fit(whole, pages, kAny),
      policy::tokens_that_fit(whole, model.lent_pages - model.guest_pages, kAny),
      policy::most_away(attention(id, model), model.guest_loss));
}

/// The host is taken to be as fast as this device: what it took beyond that was lost, as far as
/// somebody waited for it.
void WorkerCore::Impl::learn_guest_times(const StepDone& done) {
  const GuestTimes& times = done.guests;
  if (times.positions == 0 || plan_.batches.size() != 1) {
    return;
  }
  std::int64_t away = 0;
  for (const SliceDone& slice : done.slices) {
    away += sequences_.find(slice.sequence)->away;
  }
  const double one = static_cast<double>(times.home.count()) / static_cast<double>(times.positions);
  const Duration theirs(static_cast<Duration::rep>(one * static_cast<double>(away)));
  const Duration lost = std::clamp(times.home + times.waited - theirs, Duration{}, times.waited);
  Resident& model = models_.at(plan_.batches.front().model);
  const std::int64_t weight = model.attention == 0 ? 1 : kNewest;
  model.attention += (one - model.attention) / static_cast<double>(weight);
  model.guest_loss += (lost - model.guest_loss) / weight;
}

Duration WorkerCore::Impl::attention(ModelId id, const Resident& model) const {
  std::int64_t positions = 0;
  for (const auto& [sequence_id, sequence] : sequences_.all()) {
    positions += sequence.model == id ? sequence.computed : 0;
  }
  return Duration(static_cast<Duration::rep>(model.attention * static_cast<double>(positions)));
}

/// Whether pages at home can be had by moving KV to those of another device.
bool WorkerCore::Impl::can_have_more_guests() const {
  return std::any_of(models_.begin(), models_.end(), [this](const auto& entry) {
    const auto& [id, model] = entry;
    return model.lent_pages > 0 && model.recalled == 0 && !guest_moves(id, model).empty();
  });
}

void WorkerCore::Impl::preempt(SequenceId id) {
  const ModelId model = sequences_.find(id)->model;
  act(PreemptSequence{.sequence = id});
  sequences_.preempt(id, now_);
  settle_leases(model);
}

}  // namespace heddle::core
