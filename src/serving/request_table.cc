#include "serving/request_table.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace heddle::serving {

namespace {

/// Appends `token` to its record. False when it is not the next one of a choice that runs.
bool append(core::RequestRecord& record, const core::TokenEvent& token, Instant now) {
  if (token.choice >= record.choices.size() ||
      record.finished[token.choice] != spec::FinishReason::kNone) {
    return false;
  }
  std::vector<TokenId>& generated = record.generated[token.choice];
  if (token.position != std::ssize(generated)) {
    if (token.position > std::ssize(generated)) {
      log::error(
          "token out of order",
          {{"request", record.id}, {"position", token.position}, {"expected", generated.size()}});
    }
    return false;
  }
  if (record.times.first_token == Instant{}) {
    record.times.first_token = now;
  }
  if (token.preempted > Duration{}) {
    core::note(record.incidents,
               {.at = now - token.preempted,
                .kind = core::IncidentKind::kPreempted,
                .device = record.device,
                .lasted = token.preempted});
  }
  generated.push_back(token.token);
  record.finished[token.choice] = token.finish;
  return true;
}

/// How many tokens it has, of all choices.
std::size_t tokens_of(const core::RequestRecord& record) {
  std::size_t count = 0;
  for (const std::vector<TokenId>& answer : record.generated) {
    count += answer.size();
  }
  return count;
}

}  // namespace

void RequestTable::Entry::send_to(const Place& to) {
  place = to;
  tokens_brought = tokens_of(*record);
}

core::PlaceLost RequestTable::lose(const Place& place, Instant now) {
  core::PlaceLost lost{.device = place.device, .epoch = place.epoch};
  for (auto& [id, entry] : entries_) {
    if (entry.place != place) {
      continue;
    }
    ++entry.record->restarts;
    core::note(entry.record->incidents,
               {.at = now, .kind = core::IncidentKind::kLost, .device = place.device});
    lost.requests.push_back(id);
    if (tokens_of(*entry.record) > entry.tokens_brought) {
      lost.advanced.push_back(id);
    }
    entry.place.reset();
  }
  return lost;
}

void RequestTable::add(std::shared_ptr<core::RequestRecord> record,
                       std::shared_ptr<core::RequestSink> sink) {
  record->generated.resize(record->choices.size());
  record->finished.resize(record->choices.size(), spec::FinishReason::kNone);
  const RequestId id = record->id;
  const bool added =
      entries_.emplace(id, Entry{.record = std::move(record), .sink = std::move(sink)}).second;
  HEDDLE_CHECK(added);
}

RequestTable::Entry* RequestTable::find(RequestId request) {
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : &found->second;
}

const RequestTable::Entry* RequestTable::find(RequestId request) const {
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<std::shared_ptr<core::RequestSink>> RequestTable::held_for(ModelId model) const {
  std::vector<std::shared_ptr<core::RequestSink>> sinks;
  for (const auto& [id, entry] : entries_) {
    if (entry.held && !entry.place && entry.record->model == model) {
      sinks.push_back(entry.sink);
    }
  }
  return sinks;
}

std::vector<core::Unfinished> RequestTable::unfinished(Instant now) const {
  std::vector<core::Unfinished> all;
  for (const auto& [id, entry] : entries_) {
    core::Unfinished& one = all.emplace_back(core::Unfinished{
        .request = arrival(*entry.record, now), .age = now - entry.record->times.arrived});
    if (entry.place) {
      one.device = entry.place->device;
      one.epoch = entry.place->epoch;
    }
  }
  return all;
}

core::RequestArrived RequestTable::arrival(const core::RequestRecord& record, Instant now) {
  core::RequestArrived arrived{.request = record.id,
                               .model = record.model,
                               .priority = record.priority,
                               .prompt_tokens = std::ssize(record.prompt),
                               .open_ended = record.open_ended,
                               .adapter = record.adapter};
  if (record.deadline) {
    arrived.patience = *record.deadline - now;
  }
  for (const spec::SamplingParams& choice : record.choices) {
    arrived.max_tokens = std::max(arrived.max_tokens, choice.max_tokens);
  }
  return arrived;
}

std::optional<RequestTable::Entry> RequestTable::remove(RequestId request) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) {
    return std::nullopt;
  }
  std::optional<Entry> entry = std::move(found->second);
  entries_.erase(found);
  return entry;
}

std::vector<RequestTable::Entry> RequestTable::accept(const std::vector<core::TokenEvent>& tokens,
                                                      Instant now) {
  std::map<RequestId, std::vector<core::TokenEvent>> fresh;
  for (const core::TokenEvent& token : tokens) {
    Entry* entry = find(token.request);
    if (entry != nullptr && append(*entry->record, token, now)) {
      fresh[token.request].push_back(token);
    }
  }
  std::vector<Entry> done;
  for (const auto& [request, news] : fresh) {
    const Entry* entry = find(request);
    if (entry == nullptr) {
      continue;  // Cancelled by the sink of another.
    }
    const std::shared_ptr<core::RequestSink> sink = entry->sink;
    sink->on_tokens(news);
    entry = find(request);
    if (entry != nullptr && complete(*entry->record)) {
      entry->record->times.finished = now;
      done.push_back(*remove(request));
    }
  }
  return done;
}

core::RequestFinished RequestTable::report(const core::RequestRecord& record) {
  core::RequestFinished report{.request = record.id,
                               .ttft = record.times.ttft(),
                               .model = record.model,
                               .prompt_tokens = std::ssize(record.prompt)};
  std::int64_t longest = 0;
  for (const std::vector<TokenId>& generated : record.generated) {
    longest = std::max(longest, std::ssize(generated));
    report.answer_tokens += std::ssize(generated);
  }
  if (report.ttft && longest > 1) {
    report.tpot = (record.times.finished - record.times.first_token) / (longest - 1);
  }
  return report;
}

core::Submit RequestTable::submission(const core::RequestRecord& record,
                                      Duration due,
                                      Instant now) {
  core::Submit submit{.request = record.id,
                      .model = record.model,
                      .prompt = record.prompt,
                      .age = std::max(now - record.times.arrived, Duration{}),
                      .due = due,
                      .priority = record.priority,
                      .client = record.client,
                      .cache_salt = record.cache_salt,
                      .adapter = record.adapter};
  for (std::size_t choice = 0; choice < record.choices.size(); ++choice) {
    if (record.finished[choice] == spec::FinishReason::kNone) {
      submit.choices.push_back(
          {.generated = record.generated[choice], .params = record.choices[choice]});
    }
  }
  return submit;
}

bool RequestTable::complete(const core::RequestRecord& record) {
  return std::none_of(record.finished.begin(), record.finished.end(), [](spec::FinishReason r) {
    return r == spec::FinishReason::kNone;
  });
}

}  // namespace heddle::serving
