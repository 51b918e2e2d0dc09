#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "engine/activations.h"
#include "engine/banned_tokens.h"
#include "engine/engine_impl.h"
#include "engine/state_copies.h"
#include "engine/step_digest.h"
#include "ops/sample.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// Whether the next token's choice depends on this one by more than the model.
bool waits_for_token(const Sequence& sequence) {
  return sequence.start.grammar != nullptr || counts_tokens(sequence.start.params) ||
         bans_by_token(sequence.start.params);
}

}  // namespace

std::size_t Engine::Impl::Flight::live() const {
  return static_cast<std::size_t>(std::count_if(
      slices.begin(), slices.end(), [](const auto& slice) { return slice.sequence != nullptr; }));
}

bool Engine::Impl::Flight::has(SequenceId id) const {
  return std::any_of(slices.begin(), slices.end(), [id](const PassSlice& slice) {
    return slice.sequence != nullptr && slice.sequence->start.id == id;
  });
}

Result<StepOutcome> Engine::Impl::run(const policy::StepPlan& plan) {
  if (failed_) {
    return *std::exchange(failed_, std::nullopt);
  }
  if (ahead_ && ahead_->live() == 0) {
    ahead_.reset();  // It may still run; what comes now runs after it.
  }
  const bool recurs = options_.run_ahead && device_.properties().asynchronous &&
                      plan.batches.size() == 1 && plan.stable_steps > 1;
  StepOutcome outcome;
  for (const policy::ModelBatch& batch : plan.batches) {
    if (const auto done = run_batch(batch, recurs, outcome); !done) {
      return done.error();
    }
  }
  return outcome;
}

void Engine::Impl::settle() {
  if (const auto done = stream_->synchronize(); !done && !failed_) {
    failed_ = done.error();
  }
}

/// Has the weights of the sequence's adapter there, if it has one: they come before its first
/// token, and stay as long as its KV. False where they do not, which the outcome tells.
bool Engine::Impl::begin_with_adapter(Sequence& own, Model& model, StepOutcome& outcome) {
  if (own.start.adapter == nullptr || own.adapter != nullptr) {
    return true;
  }
  const auto weights = model.adapters.use(*own.start.adapter);
  if (weights) {
    own.adapter = *weights;
    return true;
  }
  if (weights.error().code == Code::kResourceExhausted) {
    outcome.starved.push_back(own.start.id);
  } else {
    outcome.failed.push_back({.sequence = own.start.id, .error = weights.error()});
  }
  return false;
}

/// A sequence without KV needs no weights of its adapter either.
void Engine::Impl::leave_adapter(Sequence& own, Model& model) {
  if (std::exchange(own.adapter, nullptr) != nullptr) {
    model.adapters.leave(*own.start.adapter);
  }
}

namespace {

/// Those of one adapter side by side, as their rows go through it together.
std::vector<PassSlice> by_adapter(std::vector<PassSlice> slices) {
  std::map<std::string_view, std::vector<PassSlice>> groups;
  for (const PassSlice& slice : slices) {
    const store::Adapter* adapter = slice.sequence->start.adapter.get();
    groups[adapter == nullptr ? std::string_view() : adapter->identity()].push_back(slice);
  }
  if (groups.size() < 2) {
    return slices;
  }
  slices.clear();
  for (const auto& [identity, group] : groups) {
    slices.insert(slices.end(), group.begin(), group.end());
  }
  return slices;
}

}  // namespace

/// The slices that get the blocks they need. Blocks are allocated before anything is enqueued, so
/// that running out of pages changes who runs and nothing else.
std::vector<PassSlice> Engine::Impl::admit(const policy::ModelBatch& batch,
                                           Model& model,
                                           StepOutcome& outcome) {
  std::vector<PassSlice> admitted;
  std::vector<PassSlice> woven;  ///< That have guests.
  std::set<SequenceId> seen;
  std::int64_t tokens = 0;
  for (const policy::StepSlice& slice : batch.slices) {
    Sequence& own = sequence(slice.sequence);
    HEDDLE_CHECK(own.start.model == batch.model);
    HEDDLE_CHECK(seen.insert(slice.sequence).second);
    HEDDLE_CHECK(slice.tokens > 0 && own.computed + slice.tokens <= own.size());
    HEDDLE_CHECK(!own.start.params.in_one_pass || slice.tokens == own.size());
    tokens += slice.tokens;
    const PassSlice pass_slice{.sequence = &own, .tokens = slice.tokens};
    if (own.start.grammar != nullptr && pass_slice.samples()) {
      if (const auto masked = own.start.grammar->mask(own.mask); !masked) {
        outcome.failed.push_back({.sequence = slice.sequence, .error = masked.error()});
        continue;
      }
    }
    if (!begin_with_adapter(own, model, outcome)) {
      continue;
    }
    if (model.kv.grow(own.kv, own.computed + slice.tokens)) {
      (model.kv.guest_tokens(own.kv) > 0 ? woven : admitted).push_back(pass_slice);
    } else {
      outcome.starved.push_back(slice.sequence);
      if (own.computed == 0) {
        leave_adapter(own, model);
      }
    }
  }
  HEDDLE_CHECK(tokens <= spec::step_tokens(model.decoder.model(), options_.max_batch_tokens));
  for (const PassSlice& slice : admitted) {  // When all have their own blocks.
    Sequence& own = sequence(slice.sequence->start.id);
    if (own.prefix) {
      const auto end = static_cast<std::size_t>(own.computed + slice.tokens);
      StateCopies(model.kv).prepare(own.kv,
                                    *own.prefix,
                                    std::span(own.start.tokens).first(end),
                                    own.computed,
                                    own.start.prompt_tokens);
    }
  }
  admitted = by_adapter(std::move(admitted));
  // Last, as their host computes while the others are computed here.
  admitted.insert(admitted.end(), woven.begin(), woven.end());
  return admitted;
}

/// Runs slices that have their blocks. Of a shard, the ranks first see whether they are about to
/// run the same, so that they neither add up what does not belong together nor wait for each other
/// for ever; and a rank that cannot go on ends the group for all. kCancelled, of a whole model
/// only, if weights will not come.
Result<void> Engine::Impl::run_pass(Flight& flight, bool recurs) {
  Model& model = mutable_model(flight.model);
  const spec::ModelSpec& spec = model.decoder.model();
  collective::Collective* group = model.decoder.group();
  HEDDLE_CHECK(spec.shard.ranks == 1 || group != nullptr);
  Result<void> done;
  if (group != nullptr) {
    done = group->agree(step_digest(flight.slices, options_.max_batch_tokens));
  }
  if (done && !flight.slices.empty()) {
    const Activations activations = use_workspace(model);
    done = flight.pass->enqueue(context_, flight.slices, model.decoder, model.kv, activations);
    if (done && recurs) {
      fly_ahead(flight);
    }
    done = done ? flight.pass->wait(*stream_) : done;
  }
  if (done || group == nullptr) {
    return done;
  }
  group->abandon();
  const Error& error = done.error();
  return Error{error.code == Code::kCancelled ? Code::kUnavailable : error.code,
               "run rank " + std::to_string(spec.shard.rank) + " of " +
                   std::to_string(spec.shard.ranks) + ": " + error.message};
}

/// Runs a batch; or, where some of it was enqueued ahead, takes the results of that, and leaves the
/// rest of the batch to a later step.
Result<void> Engine::Impl::run_batch(const policy::ModelBatch& batch,
                                     bool recurs,
                                     StepOutcome& outcome) {
  if (is_ahead(batch)) {
    const Flight flight = *std::exchange(ahead_, std::nullopt);
    outcome.ahead = true;
    if (recurs && goes_on(batch, flight)) {
      fly_ahead(flight);
    }
    if (const auto done = flight.pass->wait(*stream_); !done) {
      return done.error();
    }
    take_results(flight, outcome);
    return {};
  }
  Model& model = mutable_model(batch.model);
  if (spec::stages_of(model.decoder.model()) > 1) {
    return send_batch(batch, outcome);
  }
  Flight flight{.model = batch.model, .pass = &free_pass()};
  flight.slices = admit(batch, model, outcome);
  const auto done = run_pass(flight, recurs && !ahead_);
  if (!done && done.error().code == Code::kCancelled) {
    tell_unready(flight.slices, model, outcome);
    return {};
  }
  if (!done) {
    return done.error();
  }
  take_results(flight, outcome);
  return {};
}

void Engine::Impl::tell_unready(std::span<const PassSlice> slices,
                                Model& model,
                                StepOutcome& outcome) {
  for (const PassSlice& slice : slices) {
    Sequence& own = sequence(slice.sequence->start.id);
    StateCopies(model.kv).drop(own.kv);
    model.kv.shrink(own.kv, own.computed);
    if (own.computed == 0) {
      leave_adapter(own, model);
    }
    outcome.unready.push_back(own.start.id);
  }
}

/// Whether somebody in the batch was enqueued ahead.
bool Engine::Impl::is_ahead(const policy::ModelBatch& batch) const {
  return ahead_ && ahead_->model == batch.model &&
         std::any_of(batch.slices.begin(), batch.slices.end(), [this](const auto& slice) {
           return ahead_->has(slice.sequence);
         });
}

/// Whether the batch is what was enqueued ahead, in whatever order, but for those that have gone.
bool Engine::Impl::goes_on(const policy::ModelBatch& batch, const Flight& flight) {
  std::set<SequenceId> ahead;
  for (const PassSlice& slice : flight.slices) {
    if (slice.sequence != nullptr) {
      ahead.insert(slice.sequence->start.id);
    }
  }
  return batch.slices.size() == ahead.size() &&
         std::ranges::all_of(batch.slices, [&](const policy::StepSlice& slice) {
           return slice.tokens == 1 && ahead.contains(slice.sequence);
         });
}

/// Whether the token that is being computed is its last, whatever it is.
bool Engine::Impl::ends_for_sure(const Sequence& own) const {
  return own.generated() + 1 >= own.start.params.max_tokens ||
         own.size() + 1 >= model(own.start.model).decoder.model().max_position;
}

/// The slices of the step after `flight`, if everybody goes on who can: their tokens need not be
/// known, as they are on the device. Empty where somebody's next token depends on this one by more
/// than that, somebody has guests, or nobody goes on for sure.
std::vector<PassSlice> Engine::Impl::slices_after(const Flight& flight) const {
  std::vector<PassSlice> slices;
  for (std::size_t pick = 0; pick < flight.slices.size(); ++pick) {
    const PassSlice& slice = flight.slices[pick];
    if (slice.sequence == nullptr) {
      continue;
    }
    if (!slice.samples() || waits_for_token(*slice.sequence) ||
        ModelKv::guest_tokens(slice.sequence->kv) > 0) {
      return {};
    }
    if (!ends_for_sure(*slice.sequence)) {
      slices.push_back(
          {.sequence = slice.sequence, .tokens = 1, .pick = static_cast<std::ptrdiff_t>(pick)});
    }
  }
  return slices;
}

/// Enqueues the step after `flight`, which is being computed, where that can be done: the device
/// goes on with it while the host takes the results of `flight`, tells them and plans.
void Engine::Impl::fly_ahead(const Flight& flight) {
  Model& model = mutable_model(flight.model);
  Pass& pass = passes_[flight.pass == passes_.data() ? 1 : 0];
  if (!model.decoder.whole() || model.decoder.group() != nullptr ||
      spec::has_states(model.decoder.model())) {
    return;  // A state is what it is behind the tokens that are known.
  }
  Flight next{.model = flight.model, .pass = &pass, .slices = slices_after(flight)};
  bool grown = !next.slices.empty();
  for (std::size_t i = 0; i < next.slices.size() && grown; ++i) {
    Sequence& own = sequence(next.slices[i].sequence->start.id);
    grown = model.kv.grow(own.kv, own.size() + 1).has_value();
  }
  const Activations activations = use_workspace(model);
  if (grown &&
      pass.enqueue(context_, next.slices, model.decoder, model.kv, activations, flight.pass)) {
    ahead_ = std::move(next);
    return;
  }
  for (const PassSlice& slice : next.slices) {
    Sequence& own = sequence(slice.sequence->start.id);
    model.kv.shrink(own.kv, own.size());
  }
}

/// What is ahead of a sequence is not its any more: it goes, or begins anew.
void Engine::Impl::forget_ahead(const Sequence& own) {
  if (ahead_) {
    for (PassSlice& slice : ahead_->slices) {
      slice.sequence = slice.sequence == &own ? nullptr : slice.sequence;
    }
  }
}

/// Takes in what a pass computed, once it was waited for.
void Engine::Impl::take_results(const Flight& flight, StepOutcome& outcome) {
  Model& model = mutable_model(flight.model);
  const Pass& pass = *flight.pass;
  std::size_t sampled = 0;
  std::span<const float> pooled = pass.pooled();
  for (std::size_t i = 0; i < flight.slices.size(); ++i) {
    const PassSlice& slice = flight.slices[i];
    if (slice.sequence == nullptr) {
      ++sampled;  // It was, for nobody.
      continue;
    }
    note_scores(slice, pass.scored(i));
    if (pools(slice.sequence->start.params)) {
      const auto count =
          static_cast<std::size_t>(slice.pooled_rows() * spec::pooled_width(model.decoder.model()));
      pool_slice(slice, pooled.first(count), model, outcome);
      pooled = pooled.subspan(count);
    } else if (slice.samples()) {
      finish_slice(slice, pass.sampled()[sampled], pass.details(sampled), model, outcome);
      ++sampled;
    } else {
      finish_slice(slice, std::nullopt, {}, model, outcome);
    }
  }
  if (ahead_) {
    for (PassSlice& slice : ahead_->slices) {
      slice.pick = PassSlice::kKnown;  // The tokens before are known now.
    }
  }
}

/// Keeps what a slice tells of its prompt's tokens until the first token is told.
void Engine::Impl::note_scores(const PassSlice& slice, std::vector<spec::PromptToken> scored) {
  if (scored.empty()) {
    return;
  }
  Sequence& own = sequence(slice.sequence->start.id);
  own.prompt.resize(static_cast<std::size_t>(own.start.prompt_tokens - 1));
  std::move(scored.begin(), scored.end(), own.prompt.begin() + own.computed);
}

/// The tokens of a slice have KV now.
void Engine::Impl::count_computed(const PassSlice& slice, Sequence& own, Model& model) {
  own.computed += slice.tokens;
  own.begun = true;
  if (own.prefix) {
    const auto computed = std::span(own.start.tokens).first(static_cast<std::size_t>(own.computed));
    model.kv.keep_prefix(own.kv, *own.prefix, computed);
    StateCopies(model.kv).keep(own.kv);
  }
  model.kv.slide(own.kv, own.computed);
}

/// Takes in the hidden states that a slice was run for: one after the other, in double, so that the
/// chunks of a text do not show in its mean.
void Engine::Impl::pool_slice(const PassSlice& slice,
                              std::span<const float> states,
                              Model& model,
                              StepOutcome& outcome) {
  Sequence& own = sequence(slice.sequence->start.id);
  const bool last = slice.last();
  const auto width = static_cast<std::size_t>(spec::pooled_width(model.decoder.model()));
  count_computed(slice, own, model);
  own.pooled.resize(width);
  for (std::size_t i = 0; i < states.size(); ++i) {
    own.pooled[i % width] += static_cast<double>(states[i]);
  }
  SliceResult result{.sequence = own.start.id, .computed = own.computed};
  if (last) {
    const bool mean = own.start.params.pooling == spec::Pooling::kMean;
    const double share = mean ? 1.0 / static_cast<double>(own.size()) : 1.0;
    for (const double sum : own.pooled) {
      result.details.embedding.push_back(static_cast<float>(sum * share));
    }
    if (!std::ranges::all_of(result.details.embedding, [](float x) { return std::isfinite(x); })) {
      outcome.failed.push_back(
          {.sequence = own.start.id,
           .error = {
               Code::kCorrupt,
               "pool the " + std::to_string(own.size()) + " tokens of sequence " +
                   std::to_string(own.start.id.value()) + " of model " +
                   std::to_string(own.start.model.value()) +
                   ": what comes of them is no number; the weights are damaged or overflow"}});
      return;
    }
    result.details.cached_tokens = own.reused;
    result.token = 0;
    result.finish = spec::FinishReason::kStop;
    own.start.tokens.push_back(*result.token);
  }
  outcome.results.push_back(std::move(result));
}

void Engine::Impl::finish_slice(const PassSlice& slice,
                                std::optional<TokenId> token,
                                spec::TokenDetails details,
                                Model& model,
                                StepOutcome& outcome) {
  Sequence& own = sequence(slice.sequence->start.id);
  count_computed(slice, own, model);
  if (token == ops::kNoToken) {
    outcome.failed.push_back(
        {.sequence = own.start.id,
         .error = {Code::kCorrupt,
                   "sample token " + std::to_string(own.size()) + " of sequence " +
                       std::to_string(own.start.id.value()) + " of model " +
                       std::to_string(own.start.model.value()) +
                       ": the logits are not numbers; the weights are damaged or overflow"}});
    forget_ahead(own);
    return;
  }
  SliceResult result{.sequence = own.start.id, .computed = own.computed};
  if (token.has_value()) {
    result.token = token;
    result.details = std::move(details);
    result.position = own.generated();
    if (result.position == 0) {
      result.details.cached_tokens = own.reused;
      result.details.prompt = std::exchange(own.prompt, {});
    }
    own.start.tokens.push_back(*token);
    if (counts_tokens(own.start.params)) {
      count_generated(own.uses, *token);
    }
    if (own.start.grammar != nullptr) {
      // The mask allowed it, so the grammar does; if not, the next mask says so.
      (void)own.start.grammar->accept({&*token, 1});
    }
    result.finish = finish_reason(own, model.decoder.model().max_position);
    if (result.finish != spec::FinishReason::kNone) {
      forget_ahead(own);
    }
  }
  outcome.results.push_back(std::move(result));
}

}  // namespace heddle::engine
