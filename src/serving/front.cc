#include "serving/front.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "base/log.h"

namespace heddle::serving {

namespace asio = boost::asio;

Front::Front(asio::any_io_executor executor,
             ManagerPort& manager,
             HostsPort& hosts,
             Metrics& metrics)
    : executor_(std::move(executor)), manager_(manager), hosts_(hosts), metrics_(metrics) {}

void Front::set_models(std::map<ModelId, core::ServedModel> models) {
  models_ = std::move(models);
}

/// From the loop rather than from here: the caller must not hear of it within its call.
template <class What>
void Front::soon(What what) {
  asio::post(executor_, [alive = std::weak_ptr(alive_), what = std::move(what)] {
    if (!alive.expired()) {
      what();
    }
  });
}

void Front::tell_soon(const RequestNews& news) {
  soon([this, news] { manager_.tell(news); });
}

const core::ServedModel* Front::model(ModelId id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

// ---- What the gateway asks for ----

void Front::start(std::shared_ptr<core::RequestRecord> record,
                  std::shared_ptr<core::RequestSink> sink) {
  if (record->times.arrived == Instant{}) {
    record->times.arrived = steady_now();
  }
  // What the client may have is bounded by the device's memory as it is by the context: an answer
  // that reaches either ends with "length". A prompt that leaves no room is the core's to refuse.
  const std::int64_t room =
      std::max<std::int64_t>(manager_.tokens_max(record->model) - std::ssize(record->prompt), 1);
  for (spec::SamplingParams& choice : record->choices) {
    choice.max_tokens = std::min(choice.max_tokens, room);
  }
  const core::RequestArrived arrived = RequestTable::arrival(*record, steady_now());
  requests_.add(std::move(record), std::move(sink));
  const core::ServedModel* known = model(arrived.model);
  if (known != nullptr && known->failure) {
    soon([this, request = arrived.request, error = *known->failure] { fail(request, error); });
    return;
  }
  tell_soon(arrived);
}

void Front::start_external(std::shared_ptr<core::ExternalRequest> request,
                           std::shared_ptr<core::ExternalSink> sink) {
  if (request->times.arrived == Instant{}) {
    request->times.arrived = steady_now();
  }
  const core::RequestArrived arrived = ExternalRequests::arrival(*request, steady_now());
  external_.add(std::move(request), std::move(sink));
  const core::ServedModel* known = model(arrived.model);
  if (known != nullptr && known->failure) {
    soon([this, id = arrived.request, error = *known->failure] { fail(id, error); });
    return;
  }
  manager_.tell(arrived);
}

void Front::finish_external(RequestId request) {
  if (const auto entry = external_.remove(request)) {
    entry->request->times.finished = steady_now();
    manager_.tell(core::RequestFinished{.request = request,
                                        .ttft = entry->request->times.ttft(),
                                        .model = entry->request->model,
                                        .prompt_tokens = entry->request->prompt_tokens,
                                        .answer_tokens = entry->request->answer_tokens});
  }
}

void Front::retry_external(RequestId request, bool cut) {
  ExternalRequests::Entry* entry = external_.find(request);
  if (entry != nullptr && entry->forwarded) {
    entry->forwarded = false;
    ++entry->request->restarts;
    core::note(
        entry->request->incidents,
        {.at = steady_now(), .kind = core::IncidentKind::kLost, .device = entry->request->device});
    tell_soon(core::RequestUnanswered{.request = request, .cut = cut});
  }
}

void Front::finish_choice(RequestId request, std::uint32_t choice, spec::FinishReason reason) {
  RequestTable::Entry* entry = requests_.find(request);
  if (entry == nullptr || choice >= entry->record->finished.size() ||
      entry->record->finished[choice] != spec::FinishReason::kNone) {
    return;
  }
  entry->record->finished[choice] = reason;
  if (entry->place) {
    hosts_.send(*entry->place, core::FinishChoice{.request = request, .choice = choice});
  }
  if (RequestTable::complete(*entry->record)) {
    entry->record->times.finished = steady_now();
    soon([this, done = *entry] { finish(done); });
    (void)requests_.remove(request);
  }
}

void Front::cancel(RequestId request) {
  const std::optional<RequestTable::Entry> entry = requests_.remove(request);
  if (entry) {
    give_up(*entry);
  }
  if (entry || external_.remove(request).has_value()) {
    tell_soon(core::RequestCancelled{.request = request});
  }
}

/// Whoever has the request is to forget it.
void Front::give_up(const RequestTable::Entry& entry) {
  if (entry.place) {
    hosts_.send(*entry.place, core::CancelRequest{.request = entry.record->id});
  }
}

void Front::finish(const RequestTable::Entry& done) {
  done.sink->on_done();
  manager_.tell(RequestTable::report(*done.record));
}

void Front::fail(RequestId request, const Error& error) {
  if (const std::optional<ExternalRequests::Entry> entry = external_.remove(request)) {
    entry->request->times.finished = steady_now();
    entry->sink->on_error(error);
    return;
  }
  if (const std::optional<RequestTable::Entry> entry = requests_.remove(request)) {
    give_up(*entry);
    entry->record->times.finished = steady_now();
    entry->sink->on_error(error);
  }
}

// ---- What the manager wants ----

void Front::carry_out(const core::Dispatch& command) {
  if (ExternalRequests::Entry* entry = external_.find(command.request)) {
    forward(*entry, command.device);
    return;
  }
  RequestTable::Entry* entry = requests_.find(command.request);
  if (entry == nullptr) {
    // Cancelled, of which the manager hears next; or it ended while a manager was told of all.
    tell_soon(core::RequestCancelled{.request = command.request});
    return;
  }
  const Instant now = steady_now();
  const Place place{.device = command.device, .epoch = command.epoch};
  give_up(*entry);
  entry->send_to(place);
  entry->record->times.note_dispatch(now);
  core::note_resumed(entry->record->incidents, now, command.device);
  entry->record->device = command.device;
  for (spec::SamplingParams& choice : entry->record->choices) {
    choice.max_tokens =
        std::min(choice.max_tokens, command.tokens - std::ssize(entry->record->prompt));
  }
  core::Submit submission = RequestTable::submission(*entry->record, command.due, now);
  submission.model = command.as.value_or(submission.model);
  submission.kv = command.kv;
  hosts_.send(place, std::move(submission));
}

/// The engine runs: its request's exchange may begin.
void Front::forward(ExternalRequests::Entry& entry, DeviceId device) {
  const Result<core::EngineRoute> route = hosts_.engine_route(entry.request->model, device);
  if (!route) {
    const RequestId request = entry.request->id;
    tell_soon(core::RequestCancelled{.request = request});
    fail(request, route.error());
    return;
  }
  if (entry.forwarded) {
    // The manager has heard of the engine's end before its connection broke here.
    ++entry.request->restarts;
    std::shared_ptr(entry.sink)
        ->on_lost({.code = Code::kUnavailable, .message = "the engine has ended"});
  }
  entry.forwarded = true;
  entry.request->heard = steady_now();
  entry.request->times.note_dispatch(entry.request->heard);
  core::note_resumed(entry.request->incidents, entry.request->heard, device);
  entry.request->device = device;
  std::shared_ptr(entry.sink)->on_ready(*route);
}

void Front::carry_out(const core::Hold& command) {
  if (ExternalRequests::Entry* entry = external_.find(command.request)) {
    entry->held = true;
    entry->request->times.note_load(steady_now());
    std::shared_ptr(entry->sink)->on_waiting(Duration{});
    return;
  }
  RequestTable::Entry* entry = requests_.find(command.request);
  if (entry == nullptr) {
    return;
  }
  entry->held = true;
  entry->record->times.note_load(steady_now());
  const core::ServedModel* known = model(entry->record->model);
  entry->sink->on_loading(0, known == nullptr ? 0 : known->image_bytes);
}

void Front::carry_out(const core::FailRequest& command) {
  log::info("request failed", {{"request", command.request}, {"error", command.error.message}});
  fail(command.request, command.error);
}

void Front::tell_loading(ModelId id, std::uint64_t loaded_bytes) {
  const core::ServedModel* known = model(id);
  if (known == nullptr || known->image_bytes == 0) {
    return;
  }
  for (const std::shared_ptr<core::RequestSink>& sink : requests_.held_for(id)) {
    sink->on_loading(loaded_bytes, known->image_bytes);
  }
}

// ---- What hosts say ----

/// Whether the request is where something is said of it. What comes from elsewhere is counted: it
/// is late, from a place that the request has left.
bool Front::is_at(const Place& from, RequestId request, const std::string& what) const {
  const RequestTable::Entry* entry = requests_.find(request);
  if (entry == nullptr) {
    return false;  // It has ended.
  }
  if (entry->place == from) {
    return true;
  }
  metrics_.add("heddle_misplaced_reports_total",
               "What came of requests from places where they are not, and was dropped.",
               {{"what", what}});
  return false;
}

void Front::accept(const Place& from, std::vector<core::TokenEvent> tokens) {
  std::erase_if(
      tokens, [&](const core::TokenEvent& token) { return !is_at(from, token.request, "tokens"); });
  for (const RequestTable::Entry& done : requests_.accept(tokens, steady_now())) {
    finish(done);
  }
}

bool Front::accept(const Place& from, const core::RequestReturned& returned) {
  if (!is_at(from, returned.request, "return")) {
    return false;
  }
  RequestTable::Entry& entry = *requests_.find(returned.request);
  entry.place.reset();
  core::note(
      entry.record->incidents,
      {.at = steady_now(),
       .kind = returned.recalled ? core::IncidentKind::kRecalled : core::IncidentKind::kReturned,
       .device = from.device});
  return true;
}

bool Front::accept(const Place& from, const core::RequestFailed& failed) {
  if (!is_at(from, failed.request, "failure")) {
    return false;
  }
  requests_.find(failed.request)->place.reset();
  return true;
}

void Front::lose(const Place& place) {
  core::PlaceLost lost = requests_.lose(place, steady_now());
  if (!lost.requests.empty()) {
    manager_.tell(lost);
  }
}

void Front::lose_engine(ModelId model, const Error& reason) {
  for (const ExternalRequests::Entry& entry : external_.lose(model, steady_now())) {
    entry.sink->on_lost(reason);
  }
}

void Front::note_engine(ModelId model, core::IncidentKind kind) {
  external_.note(model, kind, steady_now());
}

// ---- Questions ----

std::vector<core::Unfinished> Front::unfinished() const {
  const Instant now = steady_now();
  std::vector<core::Unfinished> all = requests_.unfinished(now);
  for (core::Unfinished& one : external_.unfinished(now)) {
    all.push_back(std::move(one));
  }
  std::ranges::sort(all, {}, [](const core::Unfinished& one) { return one.request.request; });
  return all;
}

std::optional<Instant> Front::silent_since(ModelId model) const {
  return external_.silent_since(model);
}

}  // namespace heddle::serving
