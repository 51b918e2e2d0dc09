#include "gateway/request_traces.h"

#include <algorithm>
#include <utility>

#include "api/responses.h"
#include "base/log.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

/// Milliseconds from one moment to another; null in JSON while one of them has not come.
void write_span(spec::JsonWriter& json, std::string_view key, Instant from, Instant to) {
  json.key(key);
  if (from == Instant{} || to == Instant{}) {
    json.null();
  } else {
    json.number(std::chrono::duration<double, std::milli>(to - from).count());
  }
}

void write_part(spec::JsonWriter& json, const TracePart& part) {
  const core::RequestTimes& times = part.times;
  const bool loaded = times.load_began != Instant{};
  json.begin_object().key("phases").begin_object();
  write_span(json, "queue_ms", times.arrived, loaded ? times.load_began : times.dispatched);
  write_span(json, "load_ms", times.load_began, times.dispatched);
  write_span(json, "prefill_ms", times.dispatched, times.first_token);
  write_span(json, "decode_ms", times.first_token, times.finished);
  write_span(json, "total_ms", times.arrived, times.finished);
  json.end_object();
  json.key("device").string(part.device).key("restarts").integer(part.restarts);
  json.key("prompt_tokens").integer(part.prompt_tokens);
  json.key("cached_tokens").integer(part.cached_tokens);
  json.key("completion_tokens").integer(part.completion_tokens);
  json.key("finish_reasons").begin_array();
  for (const spec::FinishReason finish : part.finished) {
    json.string(finish == spec::FinishReason::kNone ? "none" : api::finish_name(finish));
  }
  json.end_array().end_object();
}

void write_text(spec::JsonWriter& json, std::string_view key, const std::string& text) {
  json.key(key);
  if (text.empty()) {
    json.null();
  } else {
    json.string(text);
  }
}

}  // namespace

std::int64_t completion_tokens(const core::RequestRecord& record) {
  std::int64_t tokens = 0;
  for (std::size_t choice = 0; choice < record.generated.size(); ++choice) {
    if (choice >= record.choices.size() || record.choices[choice].pooling == spec::Pooling::kNone) {
      tokens += std::ssize(record.generated[choice]);
    }
  }
  return tokens;
}

TracePart tell(const core::RequestRecord& record, std::string device) {
  TracePart part{.times = record.times,
                 .device = std::move(device),
                 .restarts = record.restarts,
                 .prompt_tokens = static_cast<std::int64_t>(record.prompt.size()),
                 .cached_tokens = record.cached_tokens.value_or(0),
                 .finished = record.finished};
  part.completion_tokens = completion_tokens(record);
  return part;
}

TracePart tell(const core::ExternalRequest& request, std::string device) {
  return {.times = request.times, .device = std::move(device), .restarts = request.restarts};
}

std::shared_ptr<RequestTrace> RequestTraces::begin(RequestTrace trace) {
  std::shared_ptr<RequestTrace> record;
  if (traces_.size() >= most_) {
    record = std::move(traces_.front());
    traces_.pop_front();
  }
  if (record.use_count() == 1) {  // Nobody tells it any more: its memory serves again.
    *record = std::move(trace);
  } else {
    record = std::make_shared<RequestTrace>(std::move(trace));
  }
  traces_.push_back(std::move(record));
  return traces_.back();
}

namespace {

bool is_of(const RequestTrace& trace, RequestTraces::Whose whose) {
  return !whose || trace.tenant == *whose;
}

}  // namespace

const RequestTrace* RequestTraces::find(std::string_view id, Whose whose) const {
  const auto found = std::find_if(traces_.rbegin(), traces_.rend(), [&](const auto& trace) {
    return (trace->request_id == id || (!id.empty() && trace->answer_id == id)) &&
           is_of(*trace, whose);
  });
  return found == traces_.rend() ? nullptr : found->get();
}

std::vector<const RequestTrace*> RequestTraces::latest(std::size_t most, Whose whose) const {
  std::vector<const RequestTrace*> found;
  for (auto at = traces_.rbegin(); at != traces_.rend() && found.size() < most; ++at) {
    if (is_of(**at, whose)) {
      found.push_back(at->get());
    }
  }
  return found;
}

void log_ended(const RequestTrace& trace, const EndedRequest& ended) {
  const auto say = [&](auto... more) {
    log::info("request ended",
              {{"request", trace.request_id},
               {"model", trace.model},
               {"client", ended.client},
               {"status", trace.status},
               {"prompt_tokens", ended.prompt_tokens},
               {"cached_tokens", ended.cached_tokens},
               {"completion_tokens", ended.completion_tokens},
               {"ms", std::chrono::duration<double, std::milli>(ended.took).count()},
               {"error", ended.error},
               more...});
  };
  if (trace.trace_id.empty()) {
    say();
  } else {
    say(log::Field("trace_id", trace.trace_id));
  }
}

std::string trace_json(const RequestTrace& trace) {
  spec::JsonWriter json;
  json.begin_object().key("id").string(trace.request_id);
  write_text(json, "answer_id", trace.answer_id);
  write_text(json, "trace_id", trace.trace_id);
  json.key("model").string(trace.model).key("endpoint").string(trace.endpoint);
  json.key("arrived_ms").integer(trace.arrived_ms).key("stream").boolean(trace.streamed);
  json.key("running").boolean(trace.status == 0).key("status").integer(trace.status);
  write_text(json, "error", trace.error);
  json.key("parts").begin_array();
  for (const TracePart& part : trace.parts) {
    write_part(json, part);
  }
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace heddle::gateway
