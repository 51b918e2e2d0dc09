#include "engine/pipe.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace heddle::engine {
namespace {

Error corrupt(const PipeBatch& batch, const std::string& what) {
  return {Code::kCorrupt, "batch " + std::to_string(batch.number) + " of a pipeline: " + what};
}

std::int64_t tokens_of(const PipeBatch& batch) {
  std::int64_t tokens = 0;
  for (const PipeSlice& slice : batch.slices) {
    tokens += std::ssize(slice.tokens);
  }
  return tokens;
}

void append_rows(std::vector<float>& to,
                 std::span<const float> rows,
                 std::int64_t first,
                 std::int64_t count,
                 std::int64_t hidden) {
  const auto part = rows.subspan(static_cast<std::size_t>(first * hidden),
                                 static_cast<std::size_t>(count * hidden));
  to.insert(to.end(), part.begin(), part.end());
}

/// The rows of the last `wanted` tokens of each slice.
std::vector<float> wanted_rows(const PipeBatch& batch, std::int64_t hidden) {
  std::vector<float> rows;
  std::int64_t end = 0;
  for (const PipeSlice& slice : batch.slices) {
    end += std::ssize(slice.tokens);
    append_rows(rows, batch.rows, end - slice.wanted, slice.wanted, hidden);
  }
  return rows;
}

}  // namespace

// ---- The leader ----

PipeSlice Engine::Impl::pipe_slice(const PassSlice& slice, Sequence& own) {
  const auto tokens = std::span(own.start.tokens);
  const auto known = static_cast<std::size_t>(own.computed);
  const auto slice_tokens = tokens.subspan(known, static_cast<std::size_t>(slice.tokens));
  PipeSlice sent{.sequence = own.start.id,
                 .position = own.computed,
                 .tokens = {slice_tokens.begin(), slice_tokens.end()},
                 .wanted = slice.wanted_rows()};
  if (!std::exchange(own.followed, true)) {
    sent.prefix = {tokens.begin(), tokens.begin() + own.computed};
    sent.cache_salt = own.start.cache_salt;
  }
  return sent;
}

/// The first half of a step: what is before the next stage.
Result<void> Engine::Impl::send_batch(const policy::ModelBatch& batch, StepOutcome& outcome) {
  Model& model = mutable_model(batch.model);
  const std::vector<PassSlice> slices = admit(batch, model, outcome);
  if (slices.empty()) {
    return {};
  }
  PipeBatch sent{.model = batch.model};
  Away away;
  std::vector<BatchSlice> inputs;
  for (const PassSlice& slice : slices) {
    HEDDLE_CHECK(std::ranges::none_of(model.away, [&](const auto& entry) {
      return std::ranges::any_of(entry.second.slices, [&](const Away::Slice& other) {
        return other.slice.sequence == slice.sequence;
      });
    }));
    const Sequence& own = *slice.sequence;
    inputs.push_back({.ids = std::span(own.start.tokens)
                                 .subspan(static_cast<std::size_t>(own.computed),
                                          static_cast<std::size_t>(slice.tokens)),
                      .first_position = own.computed,
                      .kv = &own.kv});
  }
  Pass& pass = free_pass();
  const Activations activations = use_workspace(model);
  auto done = pass.enqueue_layers(context_, inputs, {}, model.decoder, model.kv, activations);
  done = done ? pass.wait(*stream_) : done;
  if (!done && done.error().code == Code::kCancelled) {
    tell_unready(slices, model, outcome);
    return {};
  }
  if (!done) {
    return done;
  }
  for (const PassSlice& slice : slices) {
    Sequence& own = sequence(slice.sequence->start.id);
    sent.slices.push_back(pipe_slice(slice, own));
    away.slices.push_back(
        {.slice = slice, .sequence = own.start.id, .wanted = sent.slices.back().wanted});
  }
  sent.number = ++model.batches;
  sent.dropped = std::exchange(model.dropped, {});
  sent.rows.assign(pass.rows().begin(), pass.rows().end());
  model.away.emplace(sent.number, std::move(away));
  outcome.sent.push_back(std::move(sent));
  return {};
}

/// The second half: what is behind the last stage.
Result<StepOutcome> Engine::Impl::finish(const PipeBatch& batch) {
  Model& model = mutable_model(batch.model);
  const auto found = model.away.find(batch.number);
  if (found == model.away.end()) {
    return corrupt(batch, "it is not away");
  }
  const std::int64_t hidden = model.decoder.model().hidden;
  StepOutcome outcome;
  Flight flight{.model = batch.model, .pass = &free_pass()};
  std::vector<float> rows;
  std::int64_t row = 0;
  for (const Away::Slice& away : found->second.slices) {
    const bool refused = std::ranges::count(batch.refused, away.sequence) > 0;
    const std::int64_t wanted = refused ? 0 : away.wanted;
    if (std::cmp_less(batch.rows.size(), (row + wanted) * hidden)) {
      return corrupt(batch, "it has too few rows");
    }
    if (away.slice.sequence != nullptr && refused) {
      Sequence& own = sequence(away.sequence);
      model.kv.shrink(own.kv, own.computed);
      outcome.refused.push_back(away.sequence);
    } else if (away.slice.sequence != nullptr) {
      append_rows(rows, batch.rows, row, wanted, hidden);
      flight.slices.push_back(away.slice);
    }
    row += wanted;
  }
  if (std::cmp_not_equal(batch.rows.size(), row * hidden)) {
    return corrupt(batch, "it has too many rows");
  }
  model.away.erase(found);
  const Activations activations = use_workspace(model);
  auto done = flight.pass->enqueue_end(context_, flight.slices, rows, model.decoder, activations);
  done = done ? flight.pass->wait(*stream_) : done;
  if (!done && done.error().code == Code::kCancelled) {
    tell_unready(flight.slices, model, outcome);
    return outcome;
  }
  if (!done) {
    return done.error();
  }
  take_results(flight, outcome);
  return outcome;
}

/// A sequence goes or begins anew: what is away of it is for nobody.
void Engine::Impl::forget_in_pipe(Sequence& own) {
  if (!std::exchange(own.followed, false)) {
    return;
  }
  Model& model = mutable_model(own.start.model);
  model.dropped.push_back(own.start.id);
  for (auto& [number, away] : model.away) {
    for (Away::Slice& slice : away.slices) {
      slice.slice.sequence = slice.slice.sequence == &own ? nullptr : slice.slice.sequence;
    }
  }
}

void Engine::Impl::join_pipe(ModelId id) {
  Model& model = mutable_model(id);
  HEDDLE_CHECK(model.sequences == 0);
  for (auto& [name, own] : model.followed) {
    model.kv.clear(own.kv);
  }
  model.followed.clear();
  model.batches = 0;
  model.away.clear();
  model.dropped.clear();
}

// ---- A follower ----

Result<void> Engine::Impl::reserve(ModelId id, std::int64_t pages) {
  Model& model = mutable_model(id);
  HEDDLE_CHECK(model.reserve != nullptr);
  join_pipe(id);
  HEDDLE_CHECK(model.reserve->resize(pool_, model.kv_owner, 0).has_value());
  return model.reserve->resize(pool_, model.kv_owner, pages);
}

/// Whether a batch goes on where the last one ended, and can be run.
Result<void> Engine::Impl::check_batch(const PipeBatch& batch,
                                       const Model& model,
                                       std::int64_t most_tokens) {
  const std::int64_t tokens = tokens_of(batch);
  if (batch.number != model.batches + 1) {
    return corrupt(batch, "the last one was " + std::to_string(model.batches));
  }
  if (tokens > most_tokens ||
      std::cmp_not_equal(batch.rows.size(), tokens * model.decoder.model().hidden)) {
    return corrupt(batch,
                   std::to_string(batch.rows.size()) + " numbers for " + std::to_string(tokens) +
                       " tokens, of which a batch has " + std::to_string(most_tokens) + " at most");
  }
  std::vector<SequenceId> seen;
  for (const PipeSlice& slice : batch.slices) {
    const auto found = model.followed.find(slice.sequence);
    const bool known =
        found != model.followed.end() && std::ranges::count(batch.dropped, slice.sequence) == 0;
    const std::int64_t next = known ? found->second.computed : std::ssize(slice.prefix);
    const bool right =
        next == slice.position && !slice.tokens.empty() && slice.wanted >= 0 &&
        slice.wanted <= std::ssize(slice.tokens) &&
        slice.position + std::ssize(slice.tokens) <= model.decoder.model().max_position &&
        std::ranges::count(seen, slice.sequence) == 0;
    if (!right) {
      return corrupt(batch,
                     "position " + std::to_string(slice.position) + " of sequence " +
                         std::to_string(slice.sequence.value()) + ", which has " +
                         std::to_string(next));
    }
    seen.push_back(slice.sequence);
  }
  return {};
}

void Engine::Impl::drop_followed(Model& model, SequenceId id) {
  const auto found = model.followed.find(id);
  if (found != model.followed.end()) {
    model.kv.clear(found->second.kv);
    model.followed.erase(found);
  }
}

/// Takes in the tokens of a slice, and the blocks for them. False, and it is forgotten, where there
/// are too few pages or not the prefix that the leader has found.
bool Engine::Impl::follow(const PipeSlice& slice, Model& model) {
  auto found = model.followed.find(slice.sequence);
  if (found == model.followed.end()) {
    Sequence own{.start = {.id = slice.sequence, .tokens = slice.prefix},
                 .kv = model.kv.make_sequence()};
    if (options_.prefix_cache) {
      own.prefix.emplace(options_.prefix_secret, slice.cache_salt);
    }
    found = model.followed.emplace(slice.sequence, std::move(own)).first;
    Sequence& begun = found->second;
    if (slice.position > 0 && begun.prefix) {
      begun.computed = model.kv.take_prefix(begun.kv, *begun.prefix, slice.prefix);
    }
  }
  Sequence& own = found->second;
  own.start.tokens.insert(own.start.tokens.end(), slice.tokens.begin(), slice.tokens.end());
  if (own.computed == slice.position && model.kv.grow(own.kv, own.size())) {
    return true;
  }
  drop_followed(model, slice.sequence);
  return false;
}

Result<void> Engine::Impl::run_stage(PipeBatch& batch) {
  Model& model = mutable_model(batch.model);
  if (const auto right = check_batch(batch, model, options_.max_batch_tokens); !right) {
    return right;
  }
  model.batches = batch.number;
  for (const auto& gone : {batch.dropped, batch.refused}) {
    for (const SequenceId id : gone) {
      drop_followed(model, id);
    }
  }
  const spec::ModelSpec& spec = model.decoder.model();
  std::vector<PipeSlice> taken;
  std::vector<float> rows;
  std::int64_t row = 0;
  for (PipeSlice& slice : batch.slices) {
    const std::int64_t tokens = std::ssize(slice.tokens);
    if (follow(slice, model)) {
      append_rows(rows, batch.rows, row, tokens, spec.hidden);
      taken.push_back(std::move(slice));
    } else {
      batch.refused.push_back(slice.sequence);
    }
    row += tokens;
  }
  batch.slices = std::move(taken);
  batch.rows = std::move(rows);
  if (batch.slices.empty()) {
    return {};
  }
  std::vector<BatchSlice> inputs;
  for (const PipeSlice& slice : batch.slices) {
    const Sequence& own = model.followed.at(slice.sequence);
    inputs.push_back({.ids = slice.tokens, .first_position = slice.position, .kv = &own.kv});
  }
  Pass& pass = free_pass();
  const Activations activations = use_workspace(model);
  auto done =
      pass.enqueue_layers(context_, inputs, batch.rows, model.decoder, model.kv, activations);
  done = done ? pass.wait(*stream_) : done;
  if (!done && done.error().code == Code::kCancelled) {
    for (const PipeSlice& slice : batch.slices) {
      drop_followed(model, slice.sequence);
      batch.refused.push_back(slice.sequence);
    }
    batch.slices.clear();
    batch.rows.clear();
    return {};
  }
  if (!done) {
    return done;
  }
  batch.rows.assign(pass.rows().begin(), pass.rows().end());
  for (const PipeSlice& slice : batch.slices) {
    Sequence& own = model.followed.at(slice.sequence);
    count_computed({.sequence = &own, .tokens = std::ssize(slice.tokens)}, own, model);
  }
  if (spec.stage.index + 1 == spec::stages_of(spec)) {
    batch.rows = wanted_rows(batch, spec.hidden);
  }
  return {};
}

// ---- What others see ----

Pipes Engine::pipes() {
  return Pipes(*impl_);
}

void Pipes::join(ModelId model) {
  engine_->join_pipe(model);
}

Result<void> Pipes::reserve(ModelId model, std::int64_t pages) {
  return engine_->reserve(model, pages);
}

Result<std::int64_t> Pipes::set_share(ModelId model, std::int64_t pages) {
  return engine_->set_share(model, pages);
}

Result<void> Pipes::run(PipeBatch& batch) {
  return engine_->run_stage(batch);
}

Result<StepOutcome> Pipes::finish(const PipeBatch& batch) {
  return engine_->finish(batch);
}

}  // namespace heddle::engine
