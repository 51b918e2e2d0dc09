#include <algorithm>
#include <tuple>
#include <utility>

#include "core/worker_core_impl.h"

namespace heddle::core {
namespace {

using policy::AdmissionRoom;
using policy::AdmissionView;

}  // namespace

/// The KV that a model may have where the device is divided: what its part leaves beside weights
/// and workspace.
std::optional<std::int64_t> WorkerCore::Impl::kv_limit(const Resident& model) const {
  if (options_.fixed_parts == 0) {
    return std::nullopt;
  }
  const policy::Footprint& footprint = model.footprint;
  const std::int64_t part = std::max(options_.pages, options_.device_pages) / options_.fixed_parts;
  return std::max(footprint.min_kv_pages, part - footprint.image_pages - footprint.overhead_pages);
}

/// Of the leader of a pipeline no more are let in than the others have pages for. Who outgrows that
/// is refused there.
std::vector<policy::AdmissionModel> WorkerCore::Impl::admission_models() const {
  std::vector<policy::AdmissionModel> models;
  for (const auto& [id, model] : models_) {
    if (model.share) {
      models.push_back({.model = id,
                        .kv = model.footprint.kv,
                        .pages_used = model.share->used,
                        .most_pages = model.apart_pages,
                        .apart = true});
      continue;
    }
    std::optional<std::int64_t> most = kv_limit(model);
    if (const std::optional<std::int64_t> piped = pages_in_pipe(model)) {
      most = std::min(most.value_or(*piped), *piped);
    }
    models.push_back(
        {.model = id, .kv = model.footprint.kv, .pages_used = model.kv_pages, .most_pages = most});
  }
  return models;
}

/// Of which nobody is admitted, as pages ran out.
std::set<ModelId> WorkerCore::Impl::crowded() const {
  std::set<ModelId> all;
  for (const auto& [id, model] : models_) {
    if (model.share ? model.share->crowded : crowded_) {
      all.insert(id);
    }
  }
  return all;
}

void WorkerCore::Impl::admit() {
  const std::set<ModelId> crowded = this->crowded();
  if (crowded.size() == models_.size()) {
    return;
  }
  if (options_.queue == policy::QueueRule::kMooreHodgson) {
    if (!engine_has_enough()) {
      admit_by_deadline(crowded);
    }
    return;
  }
  const std::vector<policy::AdmissionModel> models = admission_models();
  std::vector<AdmissionView> views = sequences_.admission_views();
  std::erase_if(views, [&](const AdmissionView& view) {
    return !view.admitted && crowded.contains(view.model);
  });
  for (const SequenceId id : policy::choose_admissions(views, models, kv_pages_total())) {
    sequences_.admit(id);
    counts_changed_ = true;
  }
}

/// Nobody has to be asked in: nobody waits, or only for the prompts of others to be read.
bool WorkerCore::Impl::engine_has_enough() const {
  const auto& all = sequences_.all();
  const bool nobody_waits =
      std::none_of(all.begin(), all.end(), [](const auto& entry) { return entry.second.waits(); });
  if (nobody_waits) {
    return true;
  }
  const bool none_goes_on = std::none_of(all.begin(), all.end(), [](const auto& entry) {
    return entry.second.begun && entry.second.waits();
  });
  const PrefillState state = prefill_state();
  return none_goes_on && state.dispatched >= state.ahead;
}

void WorkerCore::Impl::take(SequenceId id) {
  sequences_.admit(id, ++admissions_);
  counts_changed_ = true;
}

/// Whether one of those that have begun does not fit, which holds up all without a share.
bool WorkerCore::Impl::admit_begun(const std::vector<const AdmissionView*>& begun,
                                   AdmissionRoom& room,
                                   std::set<ModelId>& full) {
  bool held_up = false;
  for (const AdmissionView* view : begun) {
    const AdmissionRoom::Answer answer =
        full.contains(view->model) ? AdmissionRoom::Answer::kModelFull : room.admit(*view);
    if (answer == AdmissionRoom::Answer::kFits) {
      take(view->id);
    } else if (answer == AdmissionRoom::Answer::kModelFull) {
      full.insert(view->model);
    } else {
      if (oldest_common() == nullptr) {
        take(view->id);  // Alone it may run.
      }
      held_up = true;
      for (const auto& [id, model] : models_) {
        if (!model.share) {
          full.insert(id);
        }
      }
    }
  }
  return held_up;
}

/// Who has begun goes on first, by age; then comes the queue. Who does not fit holds up its own
/// model, and one that has begun all that have no share of their own.
void WorkerCore::Impl::admit_by_deadline(std::set<ModelId> full) {
  const std::vector<policy::AdmissionModel> models = admission_models();
  const auto views = sequences_.admission_views();
  AdmissionRoom room(views, models, kv_pages_total());
  std::map<SequenceId, const AdmissionView*> by_id;
  std::vector<const AdmissionView*> begun;
  for (const AdmissionView& view : views) {
    by_id[view.id] = &view;
    if (!view.admitted && sequences_.find(view.id)->begun) {
      begun.push_back(&view);
    }
  }
  std::sort(begun.begin(), begun.end(), [](const AdmissionView* a, const AdmissionView* b) {
    return std::tie(a->priority, a->arrived, a->id) < std::tie(b->priority, b->arrived, b->id);
  });
  const bool held_up = admit_begun(begun, room, full) || crowded_;
  for (auto held = held_up_.begin(); held != held_up_.end();) {
    const Sequence* first = sequences_.find(held->second);
    if (first != nullptr && !first->admitted && full.contains(held->first)) {
      ++held;
      continue;
    }
    if (first != nullptr && !first->admitted &&
        room.admit(*by_id.at(held->second)) != AdmissionRoom::Answer::kFits) {
      full.insert(held->first);
      ++held;
      continue;
    }
    if (first != nullptr && !first->admitted) {
      take(held->second);
    }
    held = held_up_.erase(held);
  }
  std::vector<QueuedPrefill> waiting = queued_prefills();
  std::erase_if(waiting, [&](const QueuedPrefill& entry) { return full.contains(entry.model); });
  PrefillState state = prefill_state();
  state.free_pages = room.left() * policy::kPageParts;
  for (const SequenceId id : queue_.pass(state, waiting)) {
    const AdmissionView& view = *by_id.at(id);
    if (full.contains(view.model)) {
      continue;
    }
    const AdmissionRoom::Answer answer = room.admit(view);
    if (answer == AdmissionRoom::Answer::kFits) {
      take(id);
      continue;
    }
    full.insert(view.model);
    if (answer == AdmissionRoom::Answer::kModelFull) {
      held_up_[view.model] = id;
    }
  }
  if (!held_up) {
    admit_first_if_none();
  }
}

/// The oldest, as others have less to lose. Without cached prefixes they would lose all.
void WorkerCore::Impl::recall_begun(const RecallRequests& recall) {
  std::set<std::tuple<Instant, RequestId>> by_age;
  for (const RequestId request : sequences_.requests_of(recall.model)) {
    const std::vector<SequenceId> choices = sequences_.of_request(request);
    by_age.emplace(sequences_.find(choices.front())->arrived, request);
  }
  std::int64_t left = options_.prefix_cache > 0 ? recall.most : 0;
  for (const auto& [arrived, request] : by_age) {
    if (left-- > 0) {
      give_back(request, true);
    }
  }
}

/// Whoever has pages here stays with them, unless it may take what it has along.
void WorkerCore::Impl::on(const RecallRequests& recall) {
  if (recall.begun) {
    recall_begun(recall);
    return;
  }
  std::set<std::tuple<Instant, SequenceId, RequestId>> waiting;
  for (const auto& [id, sequence] : sequences_.all()) {
    if (sequence.model == recall.model && sequence.waits()) {
      waiting.emplace(sequence.arrived, id, sequence.request);
    }
  }
  std::int64_t left = recall.most;
  for (const auto& [arrived, id, request] : waiting) {
    const std::vector<SequenceId> choices = sequences_.of_request(request);
    const bool all_wait = std::all_of(choices.begin(), choices.end(), [&](SequenceId choice) {
      return sequences_.find(choice)->waits();
    });
    if (left > 0 && !choices.empty() && all_wait) {
      give_back(request, true);
      --left;
    }
  }
}

/// Who waits for pages and nothing else. Where the device is divided, nobody could lend any. Models
/// are told of in turn, as one that has room elsewhere would hide the others.
void WorkerCore::Impl::tell_shortage(DeviceReport& report) const {
  tell_common_shortage(report);
  if (report.short_sequences == 0) {
    tell_share_shortage(report);
  }
}

void WorkerCore::Impl::tell_common_shortage(DeviceReport& report) const {
  const bool by_deadline = options_.queue == policy::QueueRule::kMooreHodgson;
  const bool lends = options_.pages < options_.device_pages;  // What it lacks may come back.
  if (options_.fixed_parts > 0 || (crowded_ && !lends) || (by_deadline && engine_has_enough())) {
    return;
  }
  const auto views = sequences_.admission_views();
  std::set<ModelId> waiting;
  std::int64_t parts = 0;
  for (const AdmissionView& view : views) {
    const Resident& model = models_.at(view.model);
    if (view.admitted || model.share || !model.complete()) {
      continue;
    }
    ++report.short_sequences;
    parts += policy::kv_parts(model.footprint.kv, view);
    waiting.insert(view.model);
  }
  const AdmissionRoom room(views, admission_models(), kv_pages_total());
  report.short_pages = std::max<std::int64_t>(
      0, (parts + policy::kPageParts - 1) / policy::kPageParts - room.left());
  if (waiting.empty() || report.short_pages == 0) {
    report.short_sequences = 0;
    return;
  }
  const auto next = waiting.upper_bound(told_short_);
  report.short_model = next == waiting.end() ? *waiting.begin() : *next;
}

/// Where nobody is admitted, who is first, whatever it needs: alone it may run.
void WorkerCore::Impl::admit_first_if_none() {
  std::vector<QueuedPrefill> waiting = queued_prefills();
  std::erase_if(waiting, [this](const QueuedPrefill& each) { return is_apart(each.model); });
  if (oldest_common() != nullptr || waiting.empty()) {
    return;
  }
  const auto first = std::min_element(
      waiting.begin(), waiting.end(), [](const QueuedPrefill& a, const QueuedPrefill& b) {
        return std::tie(a.priority, a.due, a.id) < std::tie(b.priority, b.due, b.id);
      });
  sequences_.admit(first->id, ++admissions_);
  counts_changed_ = true;
}

/// As much is kept with the engine as its next step would run of one model. Prompts that wait for
/// weights, or for pages of their group's share, are none of it: they leave the steps to others.
PrefillState WorkerCore::Impl::prefill_state() const {
  PrefillState state{.now = now_};
  Duration most = policy::kPrefillAlone * options_.step.budget;
  const std::int64_t chunk = options_.step.max_batch_tokens;
  for (const auto& [id, sequence] : sequences_.all()) {
    if (sequence.compiling) {
      continue;
    }
    const Resident& model = models_.at(sequence.model);
    if (!sequence.admitted) {
      state.ahead = std::max(state.ahead, costs_.prefill(sequence.model, 0, chunk, chunk));
    } else if (!model.complete() || (model.share && model.share->stalled)) {
      continue;
    } else if (sequence.tokens - sequence.computed > 1) {
      state.dispatched += prefill_left(sequence);
    } else {
      most = options_.step.budget;
    }
  }
  state.ahead = std::min(state.ahead, most);
  return state;
}

std::vector<QueuedPrefill> WorkerCore::Impl::queued_prefills() const {
  const std::int64_t most = kv_pages_total() * policy::kPageParts;
  std::vector<QueuedPrefill> waiting;
  for (const AdmissionView& view : sequences_.admission_views()) {
    const Sequence& sequence = *sequences_.find(view.id);
    if (view.admitted || sequence.begun) {
      continue;
    }
    const policy::Footprint& footprint = models_.at(view.model).footprint;
    const bool apart = is_apart(view.model);
    waiting.push_back(
        {.id = view.id,
         .model = view.model,
         .priority = view.priority,
         .client = sequence.client,
         .arrived = view.arrived,
         .due = sequence.due,
         .prefill = prefill_left(sequence),
         .kv_pages = apart ? 0 : std::min(policy::kv_parts(footprint.kv, view), most)});
  }
  return waiting;
}

/// What the rest of the prompt takes, with the decodes that run beside it.
Duration WorkerCore::Impl::prefill_left(const Sequence& sequence) const {
  const std::int64_t tokens = finds_prompt(sequence) ? 1 : sequence.tokens - sequence.computed;
  const Duration alone =
      costs_.prefill(sequence.model, sequence.computed, tokens, options_.step.max_batch_tokens);
  return Duration{static_cast<Duration::rep>(slowdown_ * static_cast<double>(alone.count()))};
}

/// Whether an earlier choice of its request computes the prompt, which it will then find cached.
bool WorkerCore::Impl::finds_prompt(const Sequence& sequence) const {
  if (options_.prefix_cache == 0 || sequence.computed > 0 || sequence.packed) {
    return false;
  }
  const std::vector<SequenceId> choices = sequences_.of_request(sequence.request);
  return choices.front() < sequence.id;
}

/// Where the device is divided, the victim is the newest of a model that has outgrown its part, but
/// for the last.
void WorkerCore::Impl::keep_within_limits() {
  for (const auto& [id, model] : models_) {
    const std::optional<std::int64_t> limit = kv_limit(model);
    if (!limit || model.kv_pages <= *limit) {
      continue;
    }
    std::vector<AdmissionView> views = sequences_.admission_views();
    std::erase_if(views, [&model_id = id](const AdmissionView& v) { return v.model != model_id; });
    if (const auto victim = policy::choose_preemption(views)) {
      preempt(*victim);
    }
  }
}

}  // namespace heddle::core
