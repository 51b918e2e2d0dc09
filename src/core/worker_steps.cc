#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/worker_core_impl.h"

namespace heddle::core {
namespace {

using ledger::LeaseKind;

constexpr double kMostSlowdown = 64.0;
constexpr double kNewestWeight = 0.25;     // Of a step in their average.
constexpr double kStepsOfReading = 32;     // That say how much of their time prompts take.
constexpr std::int64_t kStepsOfTime = 32;  // That say what one takes.

}  // namespace

void WorkerCore::Impl::give_back_requests(ModelId model) {
  for (const RequestId request : sequences_.requests_of(model)) {
    give_back(request, false);
  }
}

void WorkerCore::Impl::give_back(RequestId request, bool recalled) {
  for (const SequenceId id : sequences_.of_request(request)) {
    forget_sequence(id);
  }
  say(RequestReturned{.request = request, .recalled = recalled});
}

std::optional<Error> WorkerCore::Impl::unacceptable(const Submit& submit,
                                                    const Resident& model) const {
  const auto invalid = [](std::string message) {
    return Error{Code::kInvalidArgument, std::move(message)};
  };
  if (!sequences_.of_request(submit.request).empty()) {
    return invalid("the request runs here already");
  }
  if (submit.prompt.empty() || submit.choices.empty()) {
    return invalid("a request has at least one token of prompt and one choice");
  }
  const policy::Footprint& footprint = model.footprint;
  const std::int64_t most = std::max(options_.pages, options_.device_pages) -
                            footprint.image_pages - footprint.overhead_pages;
  for (const SubmitChoice& choice : submit.choices) {
    const std::int64_t length = std::ssize(submit.prompt) + choice.params.max_tokens;
    if (choice.params.max_tokens <= std::ssize(choice.generated)) {
      return invalid("choice " + std::to_string(choice.params.choice) + " has " +
                     std::to_string(std::ssize(choice.generated)) + " tokens of at most " +
                     std::to_string(choice.params.max_tokens) + ": nothing is left to generate");
    }
    const std::int64_t need = policy::kv_pages(footprint.kv, {&length, 1});
    if (need > most) {
      return invalid("a prompt of " + std::to_string(std::ssize(submit.prompt)) +
                     " tokens and up to " + std::to_string(choice.params.max_tokens) +
                     " more need " + std::to_string(need) + " pages of KV; the device has " +
                     std::to_string(most) + " beside the model");
    }
    if (auto error = too_long_for_pipe(model, length)) {
      return error;
    }
  }
  return std::nullopt;
}

void WorkerCore::Impl::on(const Submit& submit) {
  const auto found = models_.find(submit.model);
  if (found == models_.end() || found->second.stage != Stage::kOpen || found->second.draining ||
      found->second.steps_back) {
    say(RequestReturned{.request = submit.request});
    return;
  }
  if (auto error = unacceptable(submit, found->second)) {
    say(RequestFailed{.request = submit.request, .error = std::move(*error)});
    return;
  }
  if (found->second.source == ImageSource::kShared && !found->second.complete()) {
    act(PrioritiseCopy{.model = submit.model});
  }
  const std::vector<SequenceId> added = sequences_.add(submit, now_);
  for (std::size_t i = 0; i < added.size(); ++i) {
    const SubmitChoice& choice = submit.choices[i];
    AddSequence add{.sequence = added[i],
                    .model = submit.model,
                    .tokens = submit.prompt,
                    .prompt_tokens = std::ssize(submit.prompt),
                    .params = choice.params,
                    .cache_salt = submit.cache_salt,
                    .adapter = submit.adapter};
    add.tokens.insert(add.tokens.end(), choice.generated.begin(), choice.generated.end());
    act(std::move(add));
  }
  if (!submit.kv.empty() && (options_.prefix_cache == 0 || options_.fixed_parts > 0)) {
    for (const SequenceId id : added) {
      end_fetch(id);  // It does not look for any.
    }
  }
  note_arrival(submit);
  settle_leases(submit.model);
}

void WorkerCore::Impl::on(const CancelRequest& cancel) {
  residency_changed_ = residency_changed_ || stalled_;  // It may lack nothing any more.
  for (const SequenceId id : sequences_.of_request(cancel.request)) {
    forget_sequence(id);
  }
}

void WorkerCore::Impl::on(const FinishChoice& finish) {
  residency_changed_ = residency_changed_ || stalled_;
  if (const auto id = sequences_.of_choice(finish.request, finish.choice)) {
    forget_sequence(*id);
  }
}

void WorkerCore::Impl::on(const SequenceRefused& refused) {
  const Sequence* sequence = sequences_.find(refused.sequence);
  if (sequence == nullptr) {
    return;  // Another choice of its request was refused before.
  }
  const RequestId request = sequence->request;
  end_sequence(refused.sequence);
  for (const SequenceId id : sequences_.of_request(request)) {
    forget_sequence(id);
  }
  say(RequestFailed{.request = request, .error = refused.error});
}

void WorkerCore::Impl::on(const SequenceReady& ready) {
  sequences_.set_ready(ready.sequence);
  counts_changed_ = true;
}

/// Forgets a sequence that the engine knows.
void WorkerCore::Impl::forget_sequence(SequenceId id) {
  act(RemoveSequence{.sequence = id});
  end_sequence(id);
}

/// Forgets a sequence that the engine has forgotten, or never took.
void WorkerCore::Impl::end_sequence(SequenceId id) {
  const ModelId model = sequences_.find(id)->model;
  sequences_.remove(id);
  settle_leases(model);
  if (auto& share = models_.at(model).share) {
    share->crowded = share->stalled = false;
  } else {
    crowded_ = stalled_ = false;
  }
}

/// After sequences came or went: weights that serve are not for the taking, and without a computed
/// token there is no KV. What there was is cached now, or free: until the engine has counted, the
/// former is assumed, which costs nobody anything.
void WorkerCore::Impl::settle_leases(ModelId id) {
  Resident& model = models_.at(id);
  if (model.weights) {
    const LeaseKind kind =
        sequences_.count(id) > 0 ? LeaseKind::kWeightsActive : LeaseKind::kWeightsIdle;
    if (ledger_.find(*model.weights)->kind != kind) {
      const Result<void> moved = ledger_.transfer(*model.weights, kind, {.model = id});
      HEDDLE_CHECK(moved.has_value());
    }
  }
  if (!has_kv(id)) {
    const std::int64_t pages = model.kv_pages;
    set_kv(model, 0);
    set_cached(options_.prefix_cache > 0 ? cached_pages_ + pages : 0);
  }
  counts_changed_ = true;
}

void WorkerCore::Impl::move_pages(ledger::LeaseId lease, std::int64_t before, std::int64_t after) {
  if (after > before) {
    // There are as many: the engine has taken them from the pool already, or somebody has counted.
    const Result<void> grown = ledger_.grow(lease, pool_, after - before);
    HEDDLE_CHECK(grown.has_value());
    ledger_.commit(lease, pool_, after - before);
  } else if (after < before) {
    ledger_.uncommit(lease, pool_, before - after);
    ledger_.shrink(lease, pool_, before - after);
  }
}

void WorkerCore::Impl::set_kv(Resident& model, std::int64_t pages) {
  move_pages(model.kv, std::exchange(model.kv_pages, pages), pages);
}

void WorkerCore::Impl::set_cached(std::int64_t pages) {
  move_pages(cached_, std::exchange(cached_pages_, pages), pages);
}

/// What is counted as cached and free already goes first, so that at least as many pages come free
/// as the ledger says.
void WorkerCore::Impl::trim_cached(std::int64_t keep, ledger::DropReason reason) {
  set_cached(keep);
  act(TrimCached{.keep = keep, .reason = reason});
}

/// What the models of the device leave to KV.
std::int64_t WorkerCore::Impl::kv_pages_total() const {
  const ledger::PoolUsage usage = ledger_.usage(pool_);
  return usage.free + usage.of(LeaseKind::kKvOwn).reserved + cached_pages_;
}

void WorkerCore::Impl::on(const EngineIdle& /*idle*/) {
  if (tend_gathers() || tend_guests()) {
    return;  // Where guests move, that is answered first.
  }
  const bool sizes = tend_shares();
  if (residency_changed_) {
    report_changes();  // A group cannot go on, which the manager has to hear.
  }
  if (sizes || sequences_.empty()) {
    return;
  }
  admit();
  plan_ = policy::plan_step(step_views(), costs_.costs(), options_.step);
  if (ask_for_prefixes()) {
    return;  // When that is answered the engine is idle again, and less is left to plan.
  }
  if (!plan_.batches.empty()) {
    stepping_ = true;
    note_group_step();
    act(RunStep{.plan = plan_});
  }
}

/// The models that may take part in a step. One whose image is incomplete makes the step wait, so
/// it runs only where nobody else would have to wait with it.
std::set<ModelId> WorkerCore::Impl::runnable() const {
  std::set<ModelId> ready;
  const Sequence* first = nullptr;
  for (const auto& [id, sequence] : sequences_.all()) {
    const Resident& model = models_.at(sequence.model);
    const bool pipe_forms = model.followers.has_value() && model.followers->empty();
    if (model.stage != Stage::kOpen || !sequence.admitted || pipe_forms) {
      continue;
    }
    if (model.complete()) {
      ready.insert(sequence.model);
    } else if (!model.draining && (first == nullptr || sequence.arrived < first->arrived)) {
      first = &sequence;
    }
  }
  if (ready.empty() && first != nullptr) {
    ready.insert(first->model);
  }
  return ready;
}

std::vector<policy::SequenceView> WorkerCore::Impl::step_views() const {
  std::vector<policy::SequenceView> views = sequences_.step_views(runnable());
  std::erase_if(views, [this](const policy::SequenceView& view) {
    const Sequence& sequence = *sequences_.find(view.id);
    const auto& share = models_.at(view.model).share;
    if (share ? share->stalled : stalled_) {
      return true;
    }
    return waits_for_prompt(sequence) || is_held(sequence) || sequence.fetches;
  });
  take_turns(views);
  choose_group(views);
  return views;
}

/// Whether another choice of its request is computing the prompt, which it will then find cached.
bool WorkerCore::Impl::waits_for_prompt(const Sequence& sequence) const {
  if (options_.prefix_cache == 0 || sequence.computed > 0 || sequence.packed) {
    return false;
  }
  for (const policy::KvGroup& group : models_.at(sequence.model).footprint.kv) {
    // Of states, which have one block for a whole context, copies are shared.
    const bool states = group.window == group.tokens_per_block;
    if (sequence.tokens <= group.tokens_per_block && !states) {
      return false;  // Not a block of it can be shared.
    }
  }
  const std::vector<SequenceId> choices = sequences_.of_request(sequence.request);
  return std::any_of(choices.begin(), choices.end(), [&](SequenceId id) {
    const Sequence& other = *sequences_.find(id);
    return id < sequence.id && other.admitted && other.tokens - other.computed > 1;
  });
}

/// Seeks a cached prefix for those who are to begin in the next step; false if nobody is. As late
/// as that, so that they find what those before them have computed.
bool WorkerCore::Impl::ask_for_prefixes() {
  if (options_.prefix_cache == 0) {
    return false;
  }
  TakePrefixes take;
  for (const policy::ModelBatch& batch : plan_.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      const Sequence& sequence = *sequences_.find(slice.sequence);
      if (sequence.computed == 0 && !sequence.packed && asked_.insert(sequence.id).second) {
        take.sequences.push_back(sequence.id);
        take.computing.push_back(prefill_left(sequence));
      }
    }
  }
  if (take.sequences.empty()) {
    return false;
  }
  act(std::move(take));
  return true;
}

void WorkerCore::Impl::on(const PrefixesTaken& taken) {
  for (const PrefixTaken& prefix : taken.sequences) {
    sequences_.take_prefix(prefix.sequence, prefix.computed);
    note_found(prefix);
    const Sequence* sequence = sequences_.find(prefix.sequence);
    if (sequence != nullptr && !sequence->kv.empty()) {
      begin_fetch(*sequence);
    }
  }
}

/// Books what the engine holds now; what was given up first, as another may have it.
void WorkerCore::Impl::on(const KvCounted& counted) {
  for (const bool growth : {false, true}) {
    for (const KvHeld& held : counted.kv) {
      const auto found = models_.find(held.model);
      if (found != models_.end() && found->second.share) {
        found->second.share->used = held.pages;
        continue;
      }
      if (found != models_.end() && held.pages != found->second.kv_pages &&
          growth == (held.pages > found->second.kv_pages)) {
        set_kv(found->second, held.pages);
        counts_changed_ = true;
      }
      if (found != models_.end()) {
        found->second.guest_pages = held.guest_pages;
      }
    }
    if (counted.cached_pages != cached_pages_ && growth == (counted.cached_pages > cached_pages_)) {
      set_cached(counted.cached_pages);
      counts_changed_ = true;
    }
  }
  const std::int64_t most = kv_pages_total() * options_.prefix_cache / 100;
  if (cached_pages_ > most) {
    trim_cached(most, ledger::DropReason::kBound);
  }
}

void WorkerCore::Impl::on(const StepDone& done) {
  HEDDLE_CHECK(stepping_);
  stepping_ = false;
  asked_.clear();
  learn(done);
  learn_guest_times(done);
  for (const SequenceId id : done.in_pipe) {
    sequences_.set_in_pipe(id);
  }
  take_in(done.slices, done.unready, done.counted);
  if (!done.starved.empty()) {
    relieve(done);
  } else {
    keep_within_limits();
  }
}

/// What became of slices: tokens are told, sequences go on or have ended.
void WorkerCore::Impl::take_in(const std::vector<SliceDone>& slices,
                               const std::vector<SequenceId>& unready,
                               const KvCounted& counted) {
  TokensProduced produced;
  std::vector<SequenceId> ended;
  for (const SliceDone& slice : slices) {
    const Sequence& sequence = *sequences_.find(slice.sequence);
    if (slice.token) {
      produced.tokens.push_back({.request = sequence.request,
                                 .choice = sequence.choice,
                                 .position = slice.position,
                                 .token = *slice.token,
                                 .finish = slice.finish,
                                 .details = slice.details,
                                 .preempted = now_ - sequence.preempted.value_or(now_)});
    }
    if (sequences_.advance(slice)) {
      ended.push_back(slice.sequence);
    }
  }
  if (!produced.tokens.empty()) {
    say(std::move(produced));
  }
  on(counted);
  for (const SequenceId id : ended) {
    forget_sequence(id);
  }
  for (const SequenceId id : unready) {
    // Its image was abandoned: the eviction that says so is on its way, and nothing runs before.
    models_.at(sequences_.find(id)->model).draining = true;
  }
}

/// Pages ran out. A share may grow before the next step; of the device's own, see relieve_common().
void WorkerCore::Impl::relieve(const StepDone& done) {
  const auto any_of_model = [&](const std::optional<ModelId>& model, const auto& ids, auto id_of) {
    return std::ranges::any_of(ids, [&](const auto& each) {
      const Sequence* sequence = sequences_.find(id_of(each));
      return sequence != nullptr &&
             (model ? sequence->model == *model : !is_apart(sequence->model));
    });
  };
  const auto starved_id = [](SequenceId id) { return id; };
  const auto ran_id = [](const SliceDone& slice) { return slice.sequence; };
  for (auto& [id, model] : models_) {
    if (model.share && any_of_model(id, done.starved, starved_id)) {
      model.share->starved = true;
      model.share->ran = any_of_model(id, done.slices, ran_id);
    }
  }
  if (any_of_model(std::nullopt, done.starved, starved_id)) {
    relieve_common(any_of_model(std::nullopt, done.slices, ran_id));
  }
}

/// A sequence is preempted, or the manager has to make room.
void WorkerCore::Impl::relieve_common(bool ran) {
  if (can_have_more_guests()) {
    return;  // Before the next step they go.
  }
  if (drop_gathers()) {
    return;
  }
  crowded_ = true;
  if (const auto victim = policy::choose_preemption(common_views())) {
    preempt(*victim);
    return;
  }
  if (ran || sequences_.any_in_pipe()) {
    return;  // The others go on; when one ends there are pages.
  }
  const Sequence& oldest = *oldest_common();
  if (oldest.computed > 0 && !oldest.packed && pages_short(oldest) <= 0) {
    pack_oldest();
    return;
  }
  stalled_ = true;
  residency_changed_ = true;
  const bool lent = options_.pages < options_.device_pages;
  if (models_.size() == 1 && operations_.empty() && !lent) {
    do_without();
  }
}

/// One that comes late is not for who lacks pages by now.
void WorkerCore::Impl::on(const NoPages& none) {
  const Sequence* oldest = oldest_stalled();
  if (oldest == nullptr || oldest->model != none.model) {
    return;
  }
  if (stalled_) {
    do_without();
  } else if (const std::optional<ModelId> group = stalled_share()) {
    fail_request(oldest_of(*group)->request,
                 {Code::kResourceExhausted,
                  std::to_string(oldest_of(*group)->tokens) + " tokens do not fit in the " +
                      std::to_string(models_.at(*group).apart_pages) +
                      " pages of KV that each device of its group has for it"});
  }
}

/// Nobody else has pages for the oldest sequence: CUDA graphs go, or else it does.
void WorkerCore::Impl::do_without() {
  if (!give_up_graphs()) {
    give_up_oldest();
  }
}

/// Alone, and there would be enough pages: its blocks lie on more of them than they need, beside
/// others' that have gone, or where a prefix was found. Computed again from the start they do not.
void WorkerCore::Impl::pack_oldest() {
  const Sequence& oldest = *oldest_common();
  act(PreemptSequence{.sequence = oldest.id});
  sequences_.pack(oldest.id);
  settle_leases(oldest.model);
  trim_cached(0, ledger::DropReason::kKv);
}

/// Nobody is left to make room, and still there are no pages. An answer that ends with an error is
/// better than one that never does.
void WorkerCore::Impl::give_up_oldest() {
  const Sequence* oldest = oldest_common();
  const RequestId request = oldest->request;
  Error error{Code::kResourceExhausted,
              std::to_string(oldest->tokens) + " tokens do not fit in the " +
                  std::to_string(kv_pages_total()) +
                  " pages of KV that the device has beside the model"};
  fail_request(request, std::move(error));
}

void WorkerCore::Impl::fail_request(RequestId request, Error error) {
  for (const SequenceId id : sequences_.of_request(request)) {
    forget_sequence(id);
  }
  say(RequestFailed{.request = request, .error = std::move(error)});
}

void WorkerCore::Impl::learn(const StepDone& done) {
  if (!done.in_pipe.empty()) {
    return;  // It was a part of one.
  }
  std::map<ModelId, StepWork> work;
  std::map<ModelId, Duration> reading;
  Duration prefill{};
  bool full = false;  // Somebody's prompt was cut off: the step had as much of it as it could have.
  for (const SliceDone& slice : done.slices) {
    const Sequence& sequence = *sequences_.find(slice.sequence);
    if (!models_.at(sequence.model).complete()) {
      return;  // It waited for weights, which says nothing of what it costs.
    }
    const std::int64_t tokens = slice.computed - sequence.computed;
    if (sequence.tokens - sequence.computed > 1) {
      const std::int64_t chunk = options_.step.max_batch_tokens;
      prefill += costs_.prefill(sequence.model, sequence.computed, tokens, chunk);
      full = full || slice.computed < sequence.tokens;
      // The pass itself is for the decodes beside it.
      constexpr std::int64_t kNoPass = std::numeric_limits<std::int32_t>::max();
      reading[sequence.model] += costs_.prefill(sequence.model, sequence.computed, tokens, kNoPass);
    }
    StepWork& part = work[sequence.model];
    part.model = sequence.model;
    part.tokens += tokens;
    part.attention_pairs += tokens * sequence.computed + tokens * (tokens + 1) / 2;
  }
  std::vector<StepWork> parts;
  for (const auto& [id, part] : work) {
    if (part.tokens > 0) {
      parts.push_back(part);
    }
  }
  for (const StepWork& part : parts) {
    Resident& model = models_.at(part.model);
    const double share = static_cast<double>(reading[part.model].count()) /
                         static_cast<double>(std::max<Duration::rep>(done.took.count(), 1));
    model.reading += (std::min(share, 1.0) - model.reading) / kStepsOfReading;
  }
  if (full) {
    const double measured =
        static_cast<double>(done.took.count()) / static_cast<double>(prefill.count());
    slowdown_ += (std::clamp(measured, 1.0, kMostSlowdown) - slowdown_) * kNewestWeight;
  }
  const Duration own = std::max(done.took - done.hosting, Duration{});
  step_time_ += (own - step_time_) / (step_time_ == Duration{} ? 1 : kStepsOfTime);
  costs_.learn(parts, done.took);
}

}  // namespace heddle::core
