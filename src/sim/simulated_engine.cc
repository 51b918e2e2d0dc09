#include "sim/simulated_engine.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "policy/admission.h"
#include "policy/weave.h"

namespace heddle::sim {
namespace {

bool older(const Sequence& a, const Sequence& b) {
  return std::tie(a.arrived, a.id) < std::tie(b.arrived, b.id);
}

std::int64_t scaled(std::int64_t picoseconds, double scale) {
  return static_cast<std::int64_t>(static_cast<double>(picoseconds) * scale + 0.5);
}

}  // namespace

void SimulatedEngine::add(Instant now, const Sequence& sequence) {
  HEDDLE_CHECK(sequence.prompt >= 1 && sequence.computed == 0);
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), sequence, older), sequence);
  wake(now);
}

void SimulatedEngine::wake(Instant now) {
  if (running_run()) {
    interrupt(now);
  } else {
    wake_ = now;
  }
}

void SimulatedEngine::settle(Instant now) {
  if (!running_run() || now <= begun_) {
    return;
  }
  const Duration elapsed = now - begun_;
  std::int64_t done = run_.count_until(elapsed, count_);
  done = std::min(run_.sum(done) > elapsed ? done - 1 : done, count_ - 1);
  progress(done);
  begun_ += run_.sum(done);
  run_.skip(done);
  count_ -= done;
}

std::vector<Sequence> SimulatedEngine::take_all(Instant now) {
  settle(now);
  std::vector<Sequence> taken = std::move(running_);
  taken.insert(taken.end(), waiting_.begin(), waiting_.end());
  std::sort(taken.begin(), taken.end(), older);
  for (Sequence& sequence : taken) {
    sequence.lose_kv();
  }
  running_.clear();
  waiting_.clear();
  slices_.clear();
  count_ = 0;
  wake_.reset();
  starved_ = false;
  return taken;
}

std::optional<Instant> SimulatedEngine::boundary() const {
  return running_run() ? std::optional(end_) : wake_;
}

void SimulatedEngine::interrupt(Instant now) {
  if (!running_run() || now >= end_ || now < begun_) {
    return;  // Over, or paused before its first iteration.
  }
  count_ = run_.count_until(now - begun_, count_);
  end_ = begun_ + run_.sum(count_);
}

std::int64_t SimulatedEngine::blocks_for(std::int64_t tokens) const {
  return (tokens + options_.tokens_per_block - 1) / options_.tokens_per_block;
}

/// Tokens for which admission reserved room: the prompt and an expected answer.
std::int64_t SimulatedEngine::promised(const Sequence& sequence) const {
  return sequence.prompt +
         std::max(sequence.generated, std::min(sequence.generate, policy::kExpectedTokens));
}

/// Blocks of all running sequences at `place` after so many iterations of the run.
std::int64_t SimulatedEngine::blocks_after(KvPlace place, std::int64_t iterations) const {
  std::int64_t blocks = 0;
  for (const Sequence& sequence : running_) {
    if (sequence.uses(place)) {
      const std::int64_t decoded = sequence.pending() == 1 ? sequence.computed + iterations : 0;
      const std::int64_t tokens = std::max(decoded, promised(sequence));
      blocks += blocks_for(sequence.tokens_at(place, tokens));
    }
  }
  return blocks;
}

/// What so many iterations of the run do to its sequences.
void SimulatedEngine::progress(std::int64_t iterations) {
  for (const Slice& slice : slices_) {
    Sequence& sequence = running_[slice.index];
    sequence.computed += slice.tokens * iterations;
    tokens_done_ += slice.tokens * iterations;
    if (sequence.pending() <= 0 && sequence.remaining() > 0) {
      sequence.generated = sequence.computed - sequence.prompt + 1;
    }
  }
}

/// Completes the iterations of the run.
void SimulatedEngine::apply_run(EngineOutputs& outputs) {
  std::vector<bool> had_token;
  for (const Slice& slice : slices_) {
    had_token.push_back(running_[slice.index].generated > 0);
  }
  progress(count_);
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Sequence& sequence = running_[slices_[i].index];
    if (!had_token[i] && sequence.generated > 0) {
      outputs.first_tokens.push_back(sequence.id);
    }
    if (sequence.remaining() == 0 && sequence.computed >= sequence.prompt) {
      outputs.finished.push_back(sequence.id);
    }
  }
  std::erase_if(running_, [](const Sequence& sequence) {
    return sequence.remaining() == 0 && sequence.computed >= sequence.prompt;
  });
  count_ = 0;
  slices_.clear();
}

/// Lets in who waits, oldest first and nobody past another, while there are pages for its prompt
/// and the start of its answer.
void SimulatedEngine::admit(KvBudget& budget) {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < options_.max_sequences) {
    const Sequence& next = waiting_.front();
    const std::int64_t want = blocks_after(next.place, 0) + blocks_for(promised(next));
    if (budget.reserve(next.place, want, /*whole=*/true) < want) {
      return;
    }
    running_.push_back(next);
    waiting_.erase(waiting_.begin());
    if (options_.prompts_elsewhere) {
      running_.back().computed = running_.back().prompt + running_.back().generated - 1;
    }
  }
}

/// Where home is short of KV, first positions of decoding sequences move to what is lent, by the
/// rule that a live worker asks before every step (core/worker_guests.cc). Here it is asked before
/// every run.
void SimulatedEngine::move_out(KvBudget& budget, EngineOutputs& outputs) {
  const std::int64_t lent = budget.room(KvPlace::kGuest).mine;
  const std::int64_t room = lent > 0 ? lent - blocks(KvPlace::kGuest) : 0;
  if (room <= 0) {
    return;
  }
  const KvRoom home = budget.room(KvPlace::kOwn);
  const std::int64_t free = home.mine - blocks(KvPlace::kOwn);
  std::int64_t waiting = 0;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const bool may_run = static_cast<std::int64_t>(running_.size() + i) < options_.max_sequences;
    waiting += may_run ? blocks_for(promised(waiting_[i])) : 0;
  }
  const std::int64_t wanted = std::max(waiting, home.all / policy::kShortBelow) - free;
  if (wanted <= 0) {
    return;
  }
  std::vector<policy::WeaveSequence> decoding;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Sequence& each = running_[i];
    if (each.place == KvPlace::kOwn && each.pending() == 1) {
      decoding.push_back({.id = SequenceId(i),
                          .computed = each.computed,
                          .away = each.away,
                          .settled = each.computed < each.tried + policy::kFewestMoved});
    }
  }
  const std::int64_t block = options_.tokens_per_block;
  std::int64_t moved = 0;
  for (const policy::WeaveMove& move :
       policy::choose_moves(decoding, wanted * block, room * block)) {
    Sequence& sequence = running_[move.sequence.value()];
    const std::int64_t away = std::max(sequence.away, move.tokens / block * block);
    moved += away - std::exchange(sequence.away, away);
    sequence.tried = sequence.computed;
  }
  outputs.moved += moved;
  pause_ += Duration(moved * guest_cost_.move_ps / 1000);
}

/// Asks the batcher what each iteration does.
void SimulatedEngine::choose_slices() {
  std::vector<policy::SequenceView> views;
  views.reserve(running_.size());
  for (std::size_t i = 0; i < running_.size(); ++i) {
    views.push_back({.id = SequenceId(i),
                     .computed = running_[i].computed,
                     .pending = running_[i].pending(),
                     .arrived = running_[i].arrived});
  }
  std::array<policy::StepCost, 1> cost{};
  if (options_.step_budget > Duration{}) {
    cost[0] = model_->step_cost(options_.max_batch_tokens);
  }
  const policy::StepPlan plan = policy::plan_step(
      views, cost, {.budget = options_.step_budget, .max_batch_tokens = options_.max_batch_tokens});
  slices_.clear();
  prefilling_ = plan.stable_steps == 1;
  for (const policy::ModelBatch& batch : plan.batches) {
    for (const policy::StepSlice& slice : batch.slices) {
      slices_.push_back({.index = slice.sequence.value(), .tokens = slice.tokens});
    }
  }
}

/// Iterations until a sequence ends or has its first token.
std::int64_t SimulatedEngine::longest_run() const {
  if (prefilling_) {
    return 1;
  }
  std::int64_t count = std::numeric_limits<std::int64_t>::max();
  for (const Slice& slice : slices_) {
    // The last token of a prompt runs like a decode, and its time is the first token's.
    const Sequence& sequence = running_[slice.index];
    count = std::min(count, sequence.generated == 0 ? 1 : sequence.remaining());
  }
  return count;
}

/// The most iterations of the run whose blocks are within `blocks`.
std::int64_t SimulatedEngine::iterations_within(KvPlace place, std::int64_t blocks) const {
  std::int64_t fits = 0;
  std::int64_t beyond = count_ + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (blocks_after(place, middle) <= blocks ? fits : beyond) = middle;
  }
  return fits;
}

std::optional<SequenceId> SimulatedEngine::preempt_newest(Instant now, KvPlace place) {
  settle(now);
  return give_up_newest(place);
}

/// The newest running sequence with KV at `place`; null: none has any.
Sequence* SimulatedEngine::newest_at(KvPlace place) {
  Sequence* newest = nullptr;
  for (Sequence& each : running_) {
    if (each.uses(place) && (newest == nullptr || older(*newest, each))) {
      newest = &each;
    }
  }
  return newest;
}

std::optional<SequenceId> SimulatedEngine::give_up_newest(KvPlace place) {
  const Sequence* victim = newest_at(place);
  if (victim == nullptr) {
    return std::nullopt;
  }
  Sequence again = *victim;
  const auto index = static_cast<std::size_t>(victim - running_.data());
  running_.erase(running_.begin() + (victim - running_.data()));
  std::erase_if(slices_, [index](const Slice& slice) { return slice.index == index; });
  for (Slice& slice : slices_) {
    slice.index -= slice.index > index ? 1 : 0;
  }
  again.lose_kv();
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), again, older), again);
  return again.id;
}

void SimulatedEngine::return_guests(Instant now, std::int64_t room) {
  settle(now);
  while (Sequence* newest = newest_at(KvPlace::kGuest)) {
    const std::int64_t away = std::exchange(newest->away, 0);
    if (newest->place == KvPlace::kOwn && blocks(KvPlace::kOwn) <= room) {
      pause_ += Duration(away * guest_cost_.move_ps / 1000);
    } else {
      newest->away = away;
      give_up_newest(KvPlace::kGuest);
    }
  }
  for (Sequence& sequence : waiting_) {
    sequence.place = KvPlace::kOwn;
  }
  wake(now);
}

/// Shortens the run to the pages there are, giving up newest sequences while it could not take one
/// step. The last one keeps what it has and waits for pages.
SimulatedEngine::Secured SimulatedEngine::secure_memory(KvBudget& budget, EngineOutputs& outputs) {
  for (const KvPlace place : {KvPlace::kOwn, KvPlace::kGuest}) {
    const std::int64_t want = blocks_after(place, std::min(count_, options_.grow_ahead));
    const std::int64_t have = budget.reserve(place, want, /*whole=*/false);
    const std::int64_t fits =
        have >= want ? std::min(count_, options_.grow_ahead) : iterations_within(place, have);
    if (fits > 0) {
      count_ = std::min(count_, fits);
      continue;
    }
    if (running_.size() == 1) {
      return Secured::kStalled;
    }
    const std::optional<SequenceId> victim = give_up_newest(place);
    HEDDLE_CHECK(victim.has_value());
    outputs.preempted.push_back(*victim);
    return Secured::kChooseAgain;
  }
  return Secured::kYes;
}

/// The lines of the co-running law for the run's slices.
void SimulatedEngine::time_run() {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t chunks_ps = 0;
  std::array<std::int64_t, kKvPlaces> contexts{};
  std::array<std::int64_t, kKvPlaces> decodes{};  // Sequences with attention there,
  std::array<std::int64_t, kKvPlaces> grows{};    // and those whose new tokens go there.
  for (const Slice& slice : slices_) {
    const Sequence& sequence = running_[slice.index];
    tokens += slice.tokens;
    rows += slice.tokens == sequence.pending() ? 1 : 0;
    if (slice.tokens == 1 && sequence.pending() == 1) {
      for (const KvPlace place : {KvPlace::kOwn, KvPlace::kGuest}) {
        const auto at = static_cast<std::size_t>(place);
        contexts.at(at) += sequence.tokens_at(place, sequence.computed + 1);
        decodes.at(at) += sequence.uses(place) ? 1 : 0;
        grows.at(at) += sequence.place == place ? 1 : 0;
      }
    } else {
      chunks_ps += model_->chunk_ps({.tokens = slice.tokens, .cached = sequence.computed});
    }
  }
  double scale = scale_;
  if (options_.mps_percent < 100 && !prefilling_) {
    scale *= mps_slowdown(Phase::kDecode, rows, options_.mps_percent);
  }
  const std::int64_t work = model_->base_ps(tokens, rows) + chunks_ps;
  const std::int64_t home =
      decodes[0] > 0 ? model_->decode_ps() + contexts[0] * model_->context_ps() : 0;
  const std::int64_t waits = std::max(scaled(model_->fixed_ps(), scale_), neighbours_ps_);
  const std::int64_t stalled = decodes[1] > 0 ? model_->model().layers * guest_cost_.stall_ps : 0;
  run_ = IterationRun{};
  run_.add_line(model_->launch_ps(), 0);
  run_.add_line(scaled(work + home + stalled, scale) + waits,
                scaled(grows[0] * model_->context_ps(), scale));
  if (decodes[1] > 0) {
    const std::int64_t away = model_->model().layers * (guest_cost_.per_layer_ps +
                                                        guest_cost_.per_sequence_ps * decodes[1]) +
                              model_->decode_ps() + contexts[1] * guest_cost_.context_ps;
    run_.add_line(scaled(work + away, scale) + waits,
                  scaled(grows[1] * guest_cost_.context_ps, scale));
  }
  run_.set_constant(extra_ + model_->between_steps(static_cast<std::int64_t>(slices_.size())));
  gpu_ps_ = scaled(work + home, scale);
}

void SimulatedEngine::begin_run(Instant now, KvBudget& budget, EngineOutputs& outputs) {
  for (Secured secured = Secured::kChooseAgain; secured != Secured::kYes;) {
    if (!running_.empty()) {
      choose_slices();
      count_ = longest_run();
      secured = secure_memory(budget, outputs);
    }
    if (running_.empty() || secured == Secured::kStalled) {
      count_ = 0;
      slices_.clear();
      starved_ = load() > 0;
      outputs.starved = starved_;
      return;
    }
  }
  time_run();
  begun_ = now + pause_;
  pause_ = {};
  end_ = begun_ + run_.sum(count_);
}

void SimulatedEngine::finish_run(Instant now, KvBudget& budget, EngineOutputs& outputs) {
  HEDDLE_CHECK(!running_run() || now >= end_);
  wake_.reset();
  starved_ = false;
  apply_run(outputs);
  move_out(budget, outputs);
  admit(budget);
  count_ = 0;
  begin_run(now, budget, outputs);
  if (running_.empty()) {
    budget.reserve(KvPlace::kOwn, 0, /*whole=*/true);
    budget.reserve(KvPlace::kGuest, 0, /*whole=*/true);
  }
}

Instant SimulatedEngine::oldest() const {
  HEDDLE_CHECK(load() > 0);
  Instant oldest = waiting_.empty() ? Instant::max() : waiting_.front().arrived;
  for (const Sequence& sequence : running_) {
    oldest = std::min(oldest, sequence.arrived);
  }
  return oldest;
}

std::int64_t SimulatedEngine::prefill_backlog() const {
  std::int64_t tokens = 0;
  for (const Sequence& sequence : running_) {
    tokens += sequence.pending() > 1 ? sequence.pending() : 0;
  }
  for (const Sequence& sequence : waiting_) {
    tokens += sequence.pending();
  }
  return tokens;
}

void SimulatedEngine::check_invariants() const {
  HEDDLE_CHECK(static_cast<std::int64_t>(running_.size()) <= options_.max_sequences);
  HEDDLE_CHECK(std::is_sorted(waiting_.begin(), waiting_.end(), older));
  for (const Slice& slice : slices_) {
    HEDDLE_CHECK(slice.index < running_.size() && slice.tokens > 0);
    HEDDLE_CHECK(slice.tokens <= running_[slice.index].pending());
  }
  for (const Sequence& sequence : running_) {
    HEDDLE_CHECK(sequence.computed >= 0 && sequence.pending() >= 1);
    HEDDLE_CHECK(sequence.away <= sequence.computed &&
                 (sequence.away == 0 || sequence.place == KvPlace::kOwn));
    HEDDLE_CHECK(sequence.generated >= 0 && sequence.generated <= sequence.generate);
  }
  HEDDLE_CHECK(!running_run() || end_ > begun_);
}

}  // namespace heddle::sim
