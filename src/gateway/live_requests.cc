#include "gateway/live_requests.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/units.h"
#include "core/background.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// Mistral's templates take ids of nine letters and digits only; the others take any.
std::string draw_call_id(Rng& rng, text::ToolFormat format) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const bool mistral = format == text::ToolFormat::kMistral;
  std::string id = mistral ? "" : "call_";
  for (int i = 0; i < (mistral ? 9 : 24); ++i) {
    id += kLetters[rng.below(kLetters.size())];
  }
  return id;
}

}  // namespace

LiveRequests::LiveRequests(std::shared_ptr<Context> context, GenerationJob job)
    : context_(std::move(context)),
      job_(std::move(job)),
      inbox_(std::make_shared<TokenInbox>(context_->loop, context_->backlog_max)),
      arrived_(context_->now()) {}

Result<std::shared_ptr<LiveRequests>> LiveRequests::make(std::shared_ptr<Context> context,
                                                         GenerationJob job) {
  std::shared_ptr<LiveRequests> live(new LiveRequests(std::move(context), std::move(job)));
  for (std::size_t prompt = 0; prompt < live->job_.prompts.size(); ++prompt) {
    const auto& choices = live->job_.choices[prompt];
    for (std::size_t choice = 0; choice < choices.size(); ++choice) {
      Answer::Options options{.stop = live->job_.params.stop,
                              .include_stop = live->job_.params.include_stop,
                              .min_tokens = live->job_.params.min_tokens,
                              .tools = live->job_.tools,
                              .give_calls = live->job_.give_calls,
                              .reasoning = live->job_.reasoning,
                              .prompt_end = live->job_.prompt_end,
                              .logprobs = live->job_.params.logprobs.has_value(),
                              .prompt_only = live->job_.params.max_tokens == 0};
      if (!live->job_.echo.empty() && options.logprobs) {
        options.prompt = live->job_.prompts[prompt];
        options.top = static_cast<std::size_t>(*live->job_.params.logprobs);
      }
      if (live->job_.params.prompt_logprobs) {
        options.scored = live->job_.prompts[prompt];
        options.scored_top = static_cast<std::size_t>(*live->job_.params.prompt_logprobs);
      }
      Result<Answer> answer = Answer::make(live->job_.text->text, std::move(options));
      if (!answer) {
        return answer.error();
      }
      live->answers_.push_back(std::move(answer).value());
    }
  }
  live->open_ = live->answers_.size();
  return live;
}

void LiveRequests::start() {
  started_ = true;
  places_ = std::min(job_.places(), job_.prompts.size());
  for (std::size_t i = 0; i < job_.prompts.size(); ++i) {
    auto record = std::make_shared<core::RequestRecord>();
    record->id = RequestId(++context_->last_request);
    record->model = job_.model->id;
    record->adapter = job_.model->adapter();
    record->prompt = std::move(job_.prompts[i]);
    record->choices = job_.choices[i];
    record->generated.resize(record->choices.size());
    record->finished.resize(record->choices.size(), spec::FinishReason::kNone);
    record->open_ended = !job_.params.max_tokens.has_value();
    record->priority = priority_of(*job_.model, job_.params.priority, job_.least_priority);
    record->client = std::hash<std::string>{}(job_.asker.share);
    record->deadline = arrived_ + context_->limits.request_timeout;
    record->times.arrived = arrived_;
    // There is no '/' in the salt of a key, so nobody's own makes another's of it.
    const std::string& salt = job_.params.cache_salt;
    record->cache_salt = job_.asker.salt + (salt.empty() ? "" : "/" + salt);
    if (context_->clients.watched() && !core::is_background(record->priority)) {
      context_->clients.came(record->model,
                             std::shared_ptr<const core::RequestTimes>(record, &record->times));
    }
    records_.push_back(std::move(record));
  }
  if (job_.params.keep_alive) {
    (job_.model->base ? job_.model->base : job_.model)->keep_alive = job_.params.keep_alive;
  }
  held_ = job_.model->queue.take(job_.asker.share, static_cast<std::int64_t>(places_));
  context_->live.push_back(*inbox_);
  // The failure may be told from within a call of the system behind, so it is called back later.
  inbox_->on_failure([self = weak_from_this(), &loop = context_->loop] {
    asio::post(loop, [self] {
      if (const std::shared_ptr<LiveRequests> live = self.lock()) {
        live->cancel();
      }
    });
  });
  begin_trace();
  for (std::size_t i = 0; i < places_; ++i) {
    start_next();
  }
}

void LiveRequests::start_next() {
  if (begun_ < records_.size() && !cancelled_ && context_->serving != nullptr) {
    const std::size_t next = begun_++;
    context_->serving->start(records_[next], inbox_->sink(next));
  }
}

void LiveRequests::begin_trace() {
  RequestTrace trace{.tenant = job_.asker.tenant,
                     .request_id = job_.request_id,
                     .answer_id = job_.head.id,
                     .model = job_.model->config.id,
                     .endpoint = job_.endpoint,
                     .arrived_ms = wall_clock_ms(),
                     .streamed = job_.params.stream};
  trace.records.assign(records_.begin(), records_.end());
  if (job_.span) {
    trace.trace_id = job_.span->trace_id;
  }
  trace_ = context_->traces.begin(std::move(trace));
  if (job_.span) {
    job_.span->told = trace_;
  }
}

void LiveRequests::cancel() {
  if (cancelled_ || context_->serving == nullptr) {
    return;
  }
  cancelled_ = true;
  for (std::size_t i = 0; i < begun_; ++i) {
    const std::vector<spec::FinishReason>& finished = records_[i]->finished;
    const bool runs =
        std::find(finished.begin(), finished.end(), spec::FinishReason::kNone) != finished.end();
    if (runs && !inbox_->ended(i)) {
      context_->serving->cancel(records_[i]->id);
    }
  }
}

LiveRequests::~LiveRequests() {
  if (!started_ || context_->serving == nullptr) {
    return;
  }
  cancel();
  inbox_->unlink();
  const api::Usage used = usage();
  for (std::size_t i = 0; i < records_.size(); ++i) {
    core::RequestRecord& record = *records_[i];
    if (record.times.finished == Instant{}) {
      record.times.finished = context_->now();
    }
    TracePart part = tell(record, device_name(*context_, record.device));
    part.incidents = name_incidents(*context_, record.incidents);
    const bool whole = status_ == 200 && error_.empty();
    std::string reason = status_ == 499 ? "abort" : "error";
    if (whole) {
      reason = api::finish_name(record.finished[0]).empty()
                   ? "stop"
                   : std::string(api::finish_name(record.finished[0]));
    }
    context_->metrics.ended(job_.model->config.id, part, reason);
    trace_->parts.push_back(std::move(part));
  }
  account_for(*context_, job_.asker, job_.model->config.id, used);
  job_.reserved.reset();
  trace_->status = status_;
  trace_->error = api::without_paths(error_);
  trace_->records.clear();
  log_ended(*trace_,
            {.client = job_.asker.name,
             .prompt_tokens = used.prompt_tokens,
             .cached_tokens = used.cached_tokens,
             .completion_tokens = used.completion_tokens,
             .took = context_->now() - arrived_,
             .error = error_});
}

std::vector<api::Choice> LiveRequests::take() {
  std::vector<api::Choice> news;
  const std::vector<TokenInbox::Token> tokens = inbox_->take_tokens();
  if (tokens.empty()) {
    return news;
  }
  const Instant now = context_->now();
  if (last_tokens_ != Instant{}) {
    context_->metrics.token_gap(job_.model->config.id, now - last_tokens_);
  }
  last_tokens_ = now;
  for (const TokenInbox::Token& token : tokens) {
    core::RequestRecord& record = *records_[token.prompt];
    if (record.times.first_token == Instant{}) {
      record.times.first_token = now;
    }
    note_cached(record, token.event);
    const std::size_t index = token.prompt * job_.params.choices + token.event.choice;
    Answer& answer = answers_[index];
    if (answer.ended()) {
      continue;  // Drawn before the engine heard that a stop string had ended it.
    }
    api::Choice part = answer.push(token.event);
    part.index = static_cast<std::uint32_t>(index);
    for (api::ToolCall& call : part.calls) {
      if (!call.name.empty()) {
        call.id = draw_call_id(context_->rng, job_.tools);
      }
    }
    if (news.empty() || news.back().index != index) {
      news.push_back(std::move(part));
    } else {
      api::append(news.back(), std::move(part));
    }
    if (answer.ended()) {
      --open_;
      if (answer.stopped_by_string() && context_->serving != nullptr) {
        context_->serving->finish_choice(record.id, token.event.choice, spec::FinishReason::kStop);
      }
    }
  }
  return news;
}

std::vector<LiveRequests::Embedding> LiveRequests::take_embeddings() {
  std::vector<Embedding> news;
  for (TokenInbox::Token& token : inbox_->take_tokens()) {
    records_[token.prompt]->times.first_token = context_->now();
    note_cached(*records_[token.prompt], token.event);
    news.push_back({.prompt = token.prompt, .vector = std::move(token.event.details.embedding)});
    --open_;
    start_next();
  }
  return news;
}

/// A prompt counts once, however many answers it gets: as cached is what none of them computed.
void LiveRequests::note_cached(core::RequestRecord& record, const core::TokenEvent& event) {
  if (event.position == 0) {
    const std::int64_t cached = event.details.cached_tokens;
    record.cached_tokens = std::min(record.cached_tokens.value_or(cached), cached);
  }
}

/// Of several prompts, that of the first.
api::Spent LiveRequests::spent() const {
  api::Spent spent{.total = age()};
  if (records_.empty()) {
    return spent;
  }
  const core::RequestTimes& times = records_.front()->times;
  const Instant now = context_->now();
  const Instant first = times.first_token == Instant{} ? now : times.first_token;
  const Instant sent = times.dispatched == Instant{} ? first : times.dispatched;
  if (times.load_began != Instant{}) {
    spent.load = std::max(Duration{}, sent - times.load_began);
  }
  spent.prompt = std::max(Duration{}, first - sent);
  spent.answer = now - first;
  return spent;
}

api::Usage LiveRequests::usage() const {
  api::Usage usage;
  for (const std::shared_ptr<core::RequestRecord>& record : records_) {
    usage.prompt_tokens += static_cast<std::int64_t>(record->prompt.size());
    usage.cached_tokens += record->cached_tokens.value_or(0);
  }
  usage.spent = spent();
  for (const Answer& answer : answers_) {
    usage.completion_tokens += answer.tokens();
    usage.reasoning_tokens += answer.reasoning_tokens();
  }
  return usage;
}

bool LiveRequests::dispatched() const {
  // Those of which others wait for the end are not waiting for the model.
  const auto first = records_.begin();
  return std::all_of(first, first + static_cast<std::ptrdiff_t>(places_), [](const auto& record) {
    return record->times.dispatched != Instant{} || record->times.first_token != Instant{};
  });
}

void LiveRequests::check_time() {
  const config::Limits& limits = context_->limits;
  if (age() >= limits.request_timeout) {
    inbox_->fail({.code = Code::kDeadlineExceeded,
                  .message = "the answer was not complete after " +
                             format_duration(limits.request_timeout) +
                             ", which is limits.request_timeout"});
  } else if (age() >= limits.load_timeout && !dispatched()) {
    inbox_->fail({.code = Code::kDeadlineExceeded,
                  .message = "the model \"" + job_.model->config.id + "\" was not ready after " +
                             format_duration(limits.load_timeout) +
                             ", which is limits.load_timeout"});
  }
}

Duration LiveRequests::patience() const {
  const config::Limits& limits = context_->limits;
  Duration left = limits.request_timeout - age();
  if (!dispatched()) {
    left = std::min(left, limits.load_timeout - age());
  }
  return std::clamp(left, Duration{}, context_->comment_interval);
}

std::string LiveRequests::waiting_for() const {
  const std::optional<TokenInbox::Loading>& loading = inbox_->loading();
  if (!loading || loading->total == 0 || dispatched()) {
    return "waiting for " + job_.model->config.id;
  }
  return "loading " + job_.model->config.id + ": " + format_bytes(loading->loaded) + " of " +
         format_bytes(loading->total);
}

void LiveRequests::end(int status, std::string error) {
  status_ = status;
  error_ = std::move(error);
}

}  // namespace heddle::gateway
