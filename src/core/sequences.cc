#include "core/sequences.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace heddle::core {

std::vector<SequenceId> Sequences::add(const Submit& submit, Instant now) {
  HEDDLE_CHECK(!by_request_.contains(submit.request));
  std::vector<SequenceId> added;
  for (const SubmitChoice& choice : submit.choices) {
    const SequenceId id(++ids_given_);
    const auto generated = static_cast<std::int64_t>(choice.generated.size());
    sequences_[id] = {.id = id,
                      .request = submit.request,
                      .choice = choice.params.choice,
                      .model = submit.model,
                      .priority = submit.priority,
                      .client = submit.client,
                      .arrived = now - submit.age,
                      .due = now + submit.due,
                      .begun = generated > 0,
                      .compiling = choice.params.grammar.constrains() || !submit.adapter.empty(),
                      .tokens = static_cast<std::int64_t>(submit.prompt.size()) + generated,
                      .remaining = choice.params.max_tokens - generated,
                      .whole = choice.params.in_one_pass,
                      .kv = submit.kv};
    by_request_[submit.request].insert(id);
    added.push_back(id);
  }
  return added;
}

void Sequences::remove(SequenceId id) {
  const auto found = sequences_.find(id);
  HEDDLE_CHECK(found != sequences_.end());
  const auto request = by_request_.find(found->second.request);
  request->second.erase(id);
  if (request->second.empty()) {
    by_request_.erase(request);
  }
  sequences_.erase(found);
}

void Sequences::set_ready(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    found->second.compiling = false;
  }
}

bool Sequences::advance(const SliceDone& slice) {
  Sequence& sequence = sequences_.at(slice.sequence);
  sequence.computed = slice.computed;
  if (std::exchange(sequence.in_pipe, false)) {
    sequence.turn = ++turns_;
  }
  if (slice.token) {
    ++sequence.tokens;
    --sequence.remaining;
    sequence.preempted.reset();
  }
  HEDDLE_CHECK(sequence.computed <= sequence.tokens);
  return slice.finish != spec::FinishReason::kNone;
}

void Sequences::admit(SequenceId id, std::uint64_t rank) {
  Sequence& sequence = sequences_.at(id);
  HEDDLE_CHECK(!sequence.compiling);
  sequence.admitted = true;
  sequence.rank = rank;
}

void Sequences::preempt(SequenceId id, Instant now) {
  Sequence& sequence = sequences_.at(id);
  sequence.preempted = sequence.preempted.value_or(now);
  sequence.begun = true;
  sequence.admitted = sequence.in_pipe = false;
  sequence.computed = sequence.away = sequence.tried = 0;
  set_fetch(id, std::nullopt);
}

void Sequences::pack(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  sequence.computed = sequence.away = sequence.tried = 0;
  sequence.in_pipe = false;
  sequence.packed = true;
  set_fetch(id, std::nullopt);
}

void Sequences::set_in_pipe(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  HEDDLE_CHECK(sequence.admitted && !sequence.in_pipe);
  sequence.in_pipe = true;
}

void Sequences::set_away(SequenceId id, std::int64_t tokens) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    HEDDLE_CHECK(tokens <= found->second.computed);
    found->second.away = tokens;
    found->second.tried = found->second.computed;
  }
}

void Sequences::take_prefix(SequenceId id, std::int64_t computed) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    HEDDLE_CHECK(computed < found->second.tokens);
    found->second.computed = computed;
  }
}

void Sequences::set_fetch(SequenceId id, std::optional<Instant> until) {
  Sequence& sequence = sequences_.at(id);
  HEDDLE_CHECK(!until || (sequence.admitted && !sequence.kv.empty()));
  sequence.fetches = until;
  if (!until) {
    sequence.kv.clear();
  }
}

const Sequence* Sequences::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

std::vector<SequenceId> Sequences::of_request(RequestId request) const {
  const auto found = by_request_.find(request);
  if (found == by_request_.end()) {
    return {};
  }
  return {found->second.begin(), found->second.end()};
}

std::optional<SequenceId> Sequences::of_choice(RequestId request, std::uint32_t choice) const {
  for (const SequenceId id : of_request(request)) {
    if (sequences_.at(id).choice == choice) {
      return id;
    }
  }
  return std::nullopt;
}

std::set<RequestId> Sequences::requests_of(ModelId model) const {
  std::set<RequestId> requests;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.model == model) {
      requests.insert(sequence.request);
    }
  }
  return requests;
}

std::int64_t Sequences::count(ModelId model) const {
  return std::count_if(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second.model == model;
  });
}

std::int64_t Sequences::count_admitted(ModelId model) const {
  return std::count_if(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second.model == model && entry.second.admitted;
  });
}

bool Sequences::any_in_pipe() const {
  return std::any_of(
      sequences_.begin(), sequences_.end(), [](const auto& entry) { return entry.second.in_pipe; });
}

bool Sequences::any_computed(ModelId model) const {
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    return entry.second.model == model && (entry.second.computed > 0 || entry.second.in_pipe);
  });
}

std::int64_t Sequences::count_admitted() const {
  return std::count_if(sequences_.begin(), sequences_.end(), [](const auto& entry) {
    return entry.second.admitted;
  });
}

const Sequence* Sequences::oldest_admitted() const {
  const Sequence* oldest = nullptr;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.admitted && (oldest == nullptr || std::tie(sequence.arrived, id) <
                                                       std::tie(oldest->arrived, oldest->id))) {
      oldest = &sequence;
    }
  }
  return oldest;
}

std::vector<policy::AdmissionView> Sequences::admission_views() const {
  std::vector<policy::AdmissionView> views;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.compiling) {
      continue;
    }
    views.push_back({.id = id,
                     .model = sequence.model,
                     .priority = sequence.priority,
                     .arrived = sequence.arrived,
                     .admitted = sequence.admitted,
                     .tokens = sequence.tokens,
                     .cached = std::max<std::int64_t>(sequence.computed, sequence.in_pipe ? 1 : 0),
                     .remaining = sequence.remaining});
  }
  return views;
}

std::vector<policy::SequenceView> Sequences::step_views(const std::set<ModelId>& models) const {
  std::vector<policy::SequenceView> views;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.admitted && !sequence.in_pipe && models.contains(sequence.model)) {
      views.push_back({.id = id,
                       .model = sequence.model,
                       .computed = sequence.computed,
                       .pending = sequence.tokens - sequence.computed,
                       .arrived = sequence.arrived,
                       .whole = sequence.whole,
                       .rank = sequence.rank});
    }
  }
  return views;
}

}  // namespace heddle::core
