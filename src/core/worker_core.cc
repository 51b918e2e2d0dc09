#include "core/worker_core.h"

#include <algorithm>

#include "base/check.h"
#include "core/worker_core_impl.h"

namespace heddle::core {

/// Pages that a sequence lacks if nobody else has any KV; 0 or less: none.
std::int64_t WorkerCore::Impl::pages_short(const Sequence& sequence) const {
  const std::int64_t length =
      sequence.tokens + std::min(policy::kExpectedTokens, sequence.remaining);
  const Resident& model = models_.at(sequence.model);
  return policy::kv_pages(model.footprint.kv, {&length, 1}) -
         (model.share ? model.apart_pages : kv_pages_total());
}

/// Pages that only the manager can find: for the oldest sequence to go on, or be taken in.
std::int64_t WorkerCore::Impl::lacking_pages() const {
  const Sequence* oldest = oldest_stalled();
  if (oldest == nullptr || graphs_asked_) {
    return 0;
  }
  return std::max<std::int64_t>(1, pages_short(*oldest));
}

/// The oldest of the device where it finds no pages, else of a group that finds none.
const Sequence* WorkerCore::Impl::oldest_stalled() const {
  const Sequence* oldest = stalled_ ? oldest_common() : nullptr;
  const std::optional<ModelId> group = oldest == nullptr ? stalled_share() : std::nullopt;
  return group ? oldest_of(*group) : oldest;
}

/// Sequences that wait while others' prompts are read, and will be late.
std::map<ModelId, std::int64_t> WorkerCore::Impl::late_sequences() const {
  std::map<ModelId, std::int64_t> late;
  for (const auto& [id, sequence] : sequences_.all()) {
    if (sequence.waits() && !sequence.begun && queue_.late(id)) {
      ++late[sequence.model];
    }
  }
  return late;
}

DeviceReport WorkerCore::Impl::report() const {
  DeviceReport report{.version = version_, .usage = ledger_.usage(pool_)};
  const std::map<ModelId, std::int64_t> late = late_sequences();
  for (const auto& [id, model] : models_) {
    const std::int64_t sequences = sequences_.count(id);
    Residency residency = sequences > 0 ? Residency::kServing : Residency::kWarm;
    if (model.draining || model.stage == Stage::kClosing) {
      residency = Residency::kDraining;
    } else if (model.stage != Stage::kOpen) {
      residency = Residency::kLoading;
    }
    report.models.push_back({.model = id,
                             .residency = residency,
                             .kv_pages = model.kv_pages + model.apart_pages,
                             .sequences = sequences,
                             .sequences_admitted = sequences_.count_admitted(id),
                             .complete = model.stage == Stage::kOpen && model.complete(),
                             .lent_pages = model.lent_pages,
                             .guest_pages = model.guest_pages,
                             .attention = attention(id, model),
                             .guest_loss = model.guest_loss,
                             .reading = model.reading,
                             .late = late.contains(id) ? late.at(id) : 0});
  }
  report.pages_wanted = lacking_pages();
  if (report.pages_wanted > 0) {
    report.wanted_by = oldest_stalled()->model;
  }
  tell_shortage(report);
  report.step = step_time_;
  return report;
}

void WorkerCore::Impl::report_changes() {
  if (sizes_share()) {
    return;  // What is offered for a share is not what the group will have, nor what is free.
  }
  const bool due =
      !reported_at_ || now_ >= *reported_at_ + options_.report_interval || sequences_.empty();
  if (residency_changed_ || (counts_changed_ && due)) {
    DeviceReport said = report();
    told_short_ = said.short_model;
    say(std::move(said));
    reported_at_ = now_;
    residency_changed_ = counts_changed_ = false;
  }
}

void WorkerCore::Impl::check_invariants() const {
  ledger_.check_invariants();
  const ledger::PoolUsage usage = ledger_.usage(pool_);
  HEDDLE_CHECK(usage.total == options_.pages);
  std::int64_t held = cached_pages_ + workspace_pages_ + graph_pages_;
  HEDDLE_CHECK(usage.of(ledger::LeaseKind::kKvCached) ==
               (ledger::Share{.reserved = cached_pages_, .held = cached_pages_}));
  HEDDLE_CHECK(options_.prefix_cache > 0 || cached_pages_ == 0);
  for (const auto& [id, model] : models_) {
    held += model.kv_pages + model.apart_pages + (model.weights ? model.footprint.image_pages : 0);
    HEDDLE_CHECK(model.stage != Stage::kClosing || sequences_.count(id) == 0);
    HEDDLE_CHECK(has_kv(id) || model.kv_pages == 0);
    HEDDLE_CHECK(model.recalled <= model.lent_pages);
    HEDDLE_CHECK(model.apart.has_value() || model.apart_pages == 0);
    HEDDLE_CHECK(!model.apart || model.stage != Stage::kClosing);
    HEDDLE_CHECK(!model.apart || is_apart(id) || sequences_.count(id) == 0);
    HEDDLE_CHECK(!is_apart(id) || model.kv_pages == 0);
  }
  HEDDLE_CHECK(usage.free == options_.pages - held);
  HEDDLE_CHECK(workspace_pages_ == workspace_with(0));
  HEDDLE_CHECK(graph_pages_ <= options_.graph_pages);
  HEDDLE_CHECK(usage.of(ledger::LeaseKind::kOverhead).held == workspace_pages_ + graph_pages_);
  for (const auto& [id, sequence] : sequences_.all()) {
    HEDDLE_CHECK(models_.contains(sequence.model));
    HEDDLE_CHECK(sequence.tokens > sequence.computed && sequence.remaining > 0);
    HEDDLE_CHECK(sequence.admitted || (sequence.computed == 0 && !sequence.in_pipe));
    HEDDLE_CHECK(sequence.away <= sequence.computed);
  }
}

WorkerCore::WorkerCore(const WorkerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
WorkerCore::~WorkerCore() = default;
WorkerCore::WorkerCore(WorkerCore&&) noexcept = default;
WorkerCore& WorkerCore::operator=(WorkerCore&&) noexcept = default;

void WorkerCore::step(Instant now, const WorkerEvent& event, std::vector<WorkerCommand>& commands) {
  impl_->step(now, event, commands);
}

DeviceReport WorkerCore::report() const {
  return impl_->report();
}

void WorkerCore::check_invariants() const {
  impl_->check_invariants();
}

}  // namespace heddle::core
