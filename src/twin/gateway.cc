#include "twin/gateway.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "twin/contents.h"

namespace heddle::twin {

std::int64_t Request::tokens() const {
  std::int64_t longest = 0;
  for (const std::vector<TokenId>& answer : generated) {
    longest = std::max(longest, std::ssize(answer));
  }
  return longest;
}

RequestId Gateway::plan(const Ask& ask) {
  Request& request = requests_.emplace_back(Request{.ask = ask});
  request.generated.resize(ask.choices);
  request.finished.resize(ask.choices);
  return id_of(requests_.size() - 1);
}

void Gateway::arrive(RequestId id, std::optional<std::int64_t> tokens_max) {
  Request& request = at(id);
  const Ask& ask = request.ask;
  request.arrived = agenda_.now();
  request.forwarded = !tokens_max;
  request.most = ask.output_tokens;
  if (tokens_max) {
    request.most =
        std::min(request.most, std::max<std::int64_t>(*tokens_max - ask.input_tokens, 1));
  }
  on_event_(arrival(id));
}

void Gateway::cancel(RequestId id) {
  Request& request = at(id);
  if (request.end == Request::End::kNone) {
    request.last = agenda_.now();
    end(request, Request::End::kCancelled);
    on_event_(core::RequestCancelled{.request = id});
  }
}

bool Gateway::finish_choice(RequestId id, std::uint32_t choice) {
  Request& request = at(id);
  if (request.end != Request::End::kNone || request.finished.at(choice)) {
    return false;
  }
  request.finished[choice] = true;
  finish_if_complete(id);
  return true;
}

core::Submit Gateway::submit(const core::Dispatch& dispatch) {
  Request& request = at(dispatch.request);
  const Ask& ask = request.ask;
  const std::int64_t room = request.forwarded ? request.most : dispatch.tokens - ask.input_tokens;
  HEDDLE_CHECK(request.end == Request::End::kNone);
  HEDDLE_CHECK(ask.open_ended ? room > 0 : room >= request.most);
  HEDDLE_CHECK(!request.capped || room == request.most);
  request.most = std::min(request.most, room);
  // A manager that had lost the host for a while sends it there again: what runs there since it was
  // sent before speaks, too, until the worker is through with it.
  request.cut = request.cut || request.dispatched;
  request.dispatched = true;
  request.capped = true;
  request.device = dispatch.device;
  request.epoch = dispatch.epoch;
  request.brought = request.tokens();
  core::Submit submit{.request = dispatch.request,
                      .model = dispatch.as.value_or(ask.model),
                      .prompt = std::vector<TokenId>(static_cast<std::size_t>(ask.input_tokens)),
                      .age = agenda_.now() - request.arrived,
                      .due = dispatch.due,
                      .priority = ask.priority,
                      .cache_salt = ask.cache_salt};
  for (std::size_t i = 0; i < ask.choices; ++i) {
    if (!request.finished[i]) {
      core::SubmitChoice& choice = submit.choices.emplace_back();
      choice.generated = request.generated[i];
      choice.params.choice = static_cast<std::uint32_t>(i);
      choice.params.max_tokens = request.most;
      choice.params.grammar.kind =
          ask.grammar ? spec::GrammarKind::kRegex : spec::GrammarKind::kNone;
    }
  }
  return submit;
}

void Gateway::hold(RequestId id) {
  HEDDLE_CHECK(!std::exchange(at(id).held, true));
}

void Gateway::take(const core::TokenEvent& token) {
  Request& request = at(token.request);
  std::vector<TokenId>& answer = request.generated.at(token.choice);
  if (request.end != Request::End::kNone || request.finished[token.choice] ||
      token.position < std::ssize(answer)) {
    return;  // Late, or a duplicate.
  }
  if (request.cut && token.position > std::ssize(answer)) {
    return;  // What came before it was lost with a connection.
  }
  HEDDLE_CHECK(token.position == std::ssize(answer));
  HEDDLE_CHECK(token.token == right_token(request.ask.input_tokens, token.choice, token.position));
  request.last = agenda_.now();
  if (request.tokens() == 0) {
    request.first = request.last;
  }
  answer.push_back(token.token);
  if (token.finish != spec::FinishReason::kNone) {
    HEDDLE_CHECK(std::ssize(answer) == request.most);
    request.finished[token.choice] = true;
    finish_if_complete(token.request);
  }
}

void Gateway::finish_if_complete(RequestId id) {
  Request& request = at(id);
  if (std::find(request.finished.begin(), request.finished.end(), false) !=
      request.finished.end()) {
    return;
  }
  end(request, Request::End::kDone);
  core::RequestFinished finished{.request = id};
  const std::int64_t tokens = request.tokens();
  if (tokens > 0) {
    finished.ttft = request.first - request.arrived;
  }
  if (tokens > 1) {
    finished.tpot = (request.last - request.first) / (tokens - 1);
  }
  on_event_(finished);
}

core::PlaceLost Gateway::lose(DeviceId device, WorkerEpoch epoch) {
  core::PlaceLost lost{.device = device, .epoch = epoch};
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    if (request.forwarded || !is_at(id_of(i), device, epoch)) {
      continue;
    }
    request.dispatched = false;
    lost.requests.push_back(id_of(i));
    if (request.tokens() > request.brought) {
      lost.advanced.push_back(id_of(i));
    }
  }
  return lost;
}

std::vector<core::PlaceLost> Gateway::lose_all() {
  std::set<std::pair<DeviceId, WorkerEpoch>> places;
  for (Request& request : requests_) {
    if (request.end == Request::End::kNone && request.dispatched && !request.forwarded) {
      request.cut = true;
      places.emplace(request.device, request.epoch);
    }
  }
  std::vector<core::PlaceLost> all;
  for (const auto& [device, epoch] : places) {
    all.push_back(lose(device, epoch));
  }
  return all;
}

core::FrontState Gateway::tell_all() {
  core::FrontState state{.front = front_};
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    if (request.end != Request::End::kNone || request.arrived == Instant{}) {
      continue;
    }
    request.held = false;
    core::Unfinished& one = state.requests.emplace_back();
    one.request = arrival(id_of(i));
    one.age = agenda_.now() - request.arrived;
    if (request.dispatched) {
      one.device = request.device;
      one.epoch = request.epoch;
    }
  }
  return state;
}

bool Gateway::is_at(RequestId id, DeviceId device, WorkerEpoch epoch) const {
  const Request& request = this->request(id);
  return request.end == Request::End::kNone && request.dispatched && request.device == device &&
         request.epoch == epoch;
}

core::RequestArrived Gateway::arrival(RequestId id) const {
  const Request& request = this->request(id);
  const Ask& ask = request.ask;
  core::RequestArrived arrived{
      .request = id, .model = ask.model, .priority = ask.priority, .open_ended = ask.open_ended};
  if (!request.forwarded) {
    arrived.prompt_tokens = ask.input_tokens;
    arrived.max_tokens = request.most;
  }
  if (ask.patience) {
    arrived.patience = *ask.patience - (agenda_.now() - request.arrived);
  }
  return arrived;
}

void Gateway::fail(const core::FailRequest& failed) {
  HEDDLE_CHECK(!failed.error.message.empty());
  Request& request = at(failed.request);
  request.last = agenda_.now();
  request.error = failed.error;
  end(request, Request::End::kFailed);
}

void Gateway::end(Request& request, Request::End how) {
  HEDDLE_CHECK(request.end == Request::End::kNone);
  request.end = how;
  ++ended_;
}

}  // namespace heddle::twin
