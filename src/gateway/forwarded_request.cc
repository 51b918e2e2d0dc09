#include "gateway/forwarded_request.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "core/background.h"

namespace heddle::gateway {

Duration load_limit(const config::Limits& limits, const config::EngineConfig& engine) {
  return limits.load_timeout_given ? limits.load_timeout
                                   : std::max(limits.load_timeout, engine.start_timeout);
}

ForwardedRequest::ForwardedRequest(std::shared_ptr<Context> context,
                                   const ForwardJob& job,
                                   const std::string& request_id)
    : context_(std::move(context)),
      model_(job.model),
      asker_(job.asker),
      places_(model_->queue.take(asker_.share, 1)),
      request_id_(request_id),
      request_(std::make_shared<core::ExternalRequest>()),
      inbox_(std::make_shared<ExternalInbox>(context_->loop)),
      load_limit_(load_limit(context_->limits, *model_->config.engine)),
      span_(job.span),
      usage_(job.endpoint.starts_with("/api/")) {
  request_->id = RequestId(++context_->last_request);
  request_->model = model_->id;
  request_->priority = job.priority;
  request_->times.arrived = context_->now();
  request_->deadline = request_->times.arrived + context_->limits.request_timeout;
  if (context_->clients.watched() && !core::is_background(job.priority)) {
    context_->clients.came(model_->id,
                           std::shared_ptr<const core::RequestTimes>(request_, &request_->times));
  }
  context_->live.push_back(*inbox_);
  RequestTrace trace{.tenant = asker_.tenant,
                     .request_id = request_id,
                     .model = model_->config.id,
                     .endpoint = job.endpoint,
                     .arrived_ms = wall_clock_ms(),
                     .streamed = job.events};
  trace.external = request_;
  if (span_) {
    trace.trace_id = span_->trace_id;
  }
  trace_ = context_->traces.begin(std::move(trace));
  if (span_) {
    span_->told = trace_;
  }
  context_->serving->start_external(request_, inbox_);
}

ForwardedRequest::~ForwardedRequest() {
  if (context_->serving == nullptr) {
    return;
  }
  if (!inbox_->over()) {
    if (forwarded_) {
      request_->prompt_tokens = usage_.prompt_tokens().value_or(0);
      request_->answer_tokens = usage_.completion_tokens().value_or(0);
      context_->serving->finish_external(request_->id);
    } else {
      context_->serving->cancel(request_->id);
    }
  }
  inbox_->unlink();
  const Instant now = context_->now();
  request_->times.finished = now;
  TracePart part = tell(*request_, device_name(*context_, request_->device));
  part.incidents = name_incidents(*context_, request_->incidents);
  part.prompt_tokens = usage_.prompt_tokens().value_or(0);
  part.cached_tokens = usage_.cached_tokens().value_or(0);
  part.completion_tokens = usage_.completion_tokens().value_or(0);
  const bool whole = status_ < 400 && error_.empty();
  context_->metrics.ended(model_->config.id,
                          part,
                          whole            ? "stop"
                          : status_ == 499 ? "abort"
                                           : "error");
  account_for(
      *context_,
      asker_,
      model_->config.id,
      {.prompt_tokens = part.prompt_tokens,
       // A stream of whose use nothing was heard has a token in each part, at least.
       .completion_tokens =
           trace_->streamed && !usage_.completion_tokens() ? passed_ : part.completion_tokens,
       .cached_tokens = part.cached_tokens});
  trace_->status = status_;
  trace_->error = api::without_paths(error_);
  log_ended(*trace_,
            {.client = asker_.name,
             .prompt_tokens = part.prompt_tokens,
             .cached_tokens = part.cached_tokens,
             .completion_tokens = part.completion_tokens,
             .took = now - request_->times.arrived,
             .error = error_});
  trace_->parts.push_back(std::move(part));
  trace_->external.reset();
}

void ForwardedRequest::retry(bool cut) {
  forwarded_ = false;
  context_->serving->retry_external(request_->id, cut);
}

Duration ForwardedRequest::check_time() {
  const config::Limits& limits = context_->limits;
  const Duration passed = age();
  if (context_->serving == nullptr) {
    inbox_->fail({.code = Code::kUnavailable, .message = "the server is shutting down"});
  } else if (passed >= limits.request_timeout) {
    inbox_->fail({.code = Code::kDeadlineExceeded,
                  .message = "the answer was not complete after " +
                             format_duration(limits.request_timeout) +
                             ", which is limits.request_timeout"});
  } else if (passed >= load_limit_ && !was_ready_) {
    inbox_->fail({.code = Code::kDeadlineExceeded,
                  .message = "the engine of \"" + model_->config.id + "\" was not ready after " +
                             format_duration(load_limit_) + ", which is " +
                             (load_limit_ == limits.load_timeout ? "limits.load_timeout"
                                                                 : "its start_timeout")});
  }
  const Duration limit =
      was_ready_ ? limits.request_timeout : std::min(limits.request_timeout, load_limit_);
  return std::max(limit - passed, Duration{});
}

void ForwardedRequest::pass(std::string_view body, bool readable) {
  if (body.empty()) {
    return;
  }
  heard();
  ++passed_;
  if (request_->times.first_token == Instant{}) {
    request_->times.first_token = request_->heard;
  }
  if (readable) {
    usage_.see(body);
  }
}

void ForwardedRequest::end(int status, std::string error) {
  status_ = status;
  error_ = std::move(error);
}

}  // namespace heddle::gateway
