#include "gateway/request_span.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "api/responses.h"
#include "gateway/upstream.h"

namespace heddle::gateway {

namespace {

using trace::Attributes;
using trace::Span;
using trace::SpanKind;

constexpr std::string_view kTraceParent = "traceparent";
constexpr std::string_view kTraceState = "tracestate";
/// Of the requests that one client's request became, so many are told.
constexpr std::size_t kPartsTold = 16;
constexpr std::size_t kTextMost = 256;  ///< Bytes of what clients write.
constexpr int kClientLeft = 499;

/// The operation that a path stands for, in the words of OpenTelemetry's conventions.
struct Operation {
  std::string_view path;
  std::string_view name;
};
constexpr std::array kOperations{Operation{"/v1/chat/completions", "chat"},
                                 Operation{"/v1/responses", "chat"},
                                 Operation{"/v1/messages", "chat"},
                                 Operation{"/v1/completions", "text_completion"},
                                 Operation{"/completion", "text_completion"},
                                 Operation{"/infill", "text_completion"},
                                 Operation{"/v1/embeddings", "embeddings"}};

void say(Attributes& to, std::string_view key, std::string_view text) {
  to.push_back({.key = key, .value = std::string(text)});
}
void say_number(Attributes& to, std::string_view key, std::int64_t number) {
  to.push_back({.key = key, .value = number});
}

/// One stretch of a request that ran here, or was forwarded.
struct Phase {
  std::string_view name;
  std::string_view component;  ///< Who has the request meanwhile.
  Instant from{};
  Instant to{};
};

/// The first of these moments that has come.
Instant first_of(std::initializer_list<Instant> moments) {
  for (const Instant at : moments) {
    if (at != Instant{}) {
      return at;
    }
  }
  return {};
}

/// In order. A phase that was not reached is not there; the last one ends with the request.
std::vector<Phase> phases_of(const TracePart& part, bool forwarded, Instant ended) {
  const core::RequestTimes& times = part.times;
  const Instant end = first_of({times.finished, ended});
  std::vector<Phase> phases;
  phases.reserve(4);
  const auto add = [&phases](const Phase& phase) {
    if (phase.from != Instant{}) {
      phases.push_back(phase);
      phases.back().to = std::max(phase.from, phase.to);
    }
  };
  add({"queue", "manager", times.arrived, first_of({times.load_began, times.dispatched, end})});
  add({"load", "host", times.load_began, first_of({times.dispatched, end})});
  if (forwarded) {
    add({"forward", "engine", times.dispatched, end});
    return phases;
  }
  add({"prefill", "worker", times.dispatched, first_of({times.first_token, end})});
  if (part.completion_tokens > 0) {
    add({"decode", "worker", times.first_token, end});
  }
  return phases;
}

/// Where the request was at a moment: what took it away later tells, else it ended there.
const std::string& device_at(const TracePart& part, Instant at) {
  for (const TraceIncident& incident : part.incidents) {
    if (incident.what.at > at && incident.what.kind != core::IncidentKind::kResumed &&
        !incident.device.empty()) {
      return incident.device;
    }
  }
  return part.device;
}

/// "h1/gpu0", and that it is one of host h1; on the only host "gpu0".
void say_device(Attributes& to, const std::string& device) {
  if (device.empty()) {
    return;
  }
  say(to, "heddle.device", device);
  if (const std::size_t slash = device.find('/'); slash != std::string::npos) {
    say(to, "heddle.host", std::string_view(device).substr(0, slash));
  }
}

/// Makes the spans of one request, one after the other.
class Teller {
 public:
  Teller(const RequestSpan& request, int status, Instant ended, Rng& rng)
      : request_(request), status_(status), ended_(ended), rng_(rng) {}

  std::vector<Span> tell() {
    const std::size_t parts =
        request_.told == nullptr ? 0 : std::min(request_.told->parts.size(), kPartsTold);
    spans_.reserve(1 + 4 * parts);
    add_root();
    for (std::size_t i = 0; i < parts; ++i) {
      add_part(i);
    }
    return std::move(spans_);
  }

 private:
  [[nodiscard]] std::int64_t wall(Instant at) const {
    return request_.began_ns + (at - request_.began).count();
  }
  [[nodiscard]] bool client_left() const {
    return (request_.told != nullptr ? request_.told->status : status_) == kClientLeft;
  }

  /// The whole request, by the conventions for servers of HTTP.
  void add_root() {
    Span& span = spans_.emplace_back();
    span.name.append(request_.method).append(" ").append(request_.route);
    span.kind = SpanKind::kServer;
    span.trace = request_.self.trace;
    span.id = request_.self.span;
    span.parent = request_.parent;
    span.remote_parent = request_.parent != trace::SpanId{};
    span.begin_ns = request_.began_ns;
    span.end_ns = wall(ended_);
    Attributes& to = span.attributes;
    to.reserve(20);
    say(to, "http.request.method", request_.method);
    say(to, "http.route", request_.route);
    say(to, "url.path", request_.path);
    say(to, "url.scheme", request_.tls ? "https" : "http");
    say(to, "client.address", request_.client);
    say(to, "heddle.request_id", request_.request_id);
    if (status_ != kClientLeft) {
      say_number(to, "http.response.status_code", status_);
    }
    const bool broken = request_.told != nullptr && !request_.told->error.empty();
    if (client_left()) {
      say(to, "error.type", "client_left");
    } else if (status_ >= 400) {
      say(to, "error.type", std::to_string(status_));
    } else if (broken) {
      say(to, "error.type", "_OTHER");  // It came after the head of the answer.
    }
    // Of a client's own error its server has not failed.
    span.failed = status_ >= 500 || (status_ < 400 && broken && !client_left());
    if (span.failed && broken) {
      span.failure = request_.told->error;
    }
    if (request_.told != nullptr) {
      say_generation(to, *request_.told);
    }
  }

  /// By the conventions for generative AI.
  static void say_generation(Attributes& to, const RequestTrace& told) {
    const auto* const known = std::ranges::find(kOperations, told.endpoint, &Operation::path);
    if (known != kOperations.end()) {
      say(to, "gen_ai.operation.name", known->name);
    }
    say(to, "gen_ai.provider.name", "heddle");
    say(to, "gen_ai.request.model", told.model);
    if (!told.answer_id.empty()) {
      say(to, "gen_ai.response.id", told.answer_id);
    }
    std::int64_t prompt = 0;
    std::int64_t cached = 0;
    std::int64_t completion = 0;
    std::int64_t restarts = 0;
    std::vector<std::string> reasons;
    for (const TracePart& part : told.parts) {
      prompt += part.prompt_tokens;
      cached += part.cached_tokens;
      completion += part.completion_tokens;
      restarts += part.restarts;
      for (const spec::FinishReason reason : part.finished) {
        if (reason != spec::FinishReason::kNone && part.completion_tokens > 0) {
          reasons.emplace_back(api::finish_name(reason));
        }
      }
    }
    say_number(to, "gen_ai.usage.input_tokens", prompt);
    say_number(to, "gen_ai.usage.cache_read.input_tokens", cached);
    say_number(to, "gen_ai.usage.output_tokens", completion);
    if (!reasons.empty()) {
      to.push_back({.key = "gen_ai.response.finish_reasons", .value = std::move(reasons)});
    }
    to.push_back({.key = "heddle.stream", .value = told.streamed});
    if (restarts > 0) {
      say_number(to, "heddle.restarts", restarts);
    }
    if (told.parts.size() > 1) {
      say_number(to, "heddle.parts", std::ssize(told.parts));
    }
  }

  /// Its phases, each with what happened in it.
  void add_part(std::size_t index) {
    const TracePart& part = request_.told->parts[index];
    const std::size_t first = spans_.size();
    const std::vector<Phase> phases = phases_of(part, request_.asked_engine, ended_);
    for (const Phase& phase : phases) {
      add_phase(part, phase);
      if (request_.told->parts.size() > 1) {
        say_number(spans_.back().attributes, "heddle.part", static_cast<std::int64_t>(index));
      }
    }
    for (const TraceIncident& incident : part.incidents) {
      std::size_t at = 0;
      while (at + 1 < phases.size() && phases[at + 1].from <= incident.what.at) {
        ++at;
      }
      if (!phases.empty()) {
        add_event(spans_[first + at], incident);
      }
    }
  }

  void add_phase(const TracePart& part, const Phase& phase) {
    Span& span = spans_.emplace_back();
    span.name = phase.name;
    span.trace = request_.self.trace;
    span.id = trace::draw_span_id(rng_);
    span.parent = request_.self.span;
    span.begin_ns = wall(phase.from);
    span.end_ns = wall(phase.to);
    Attributes& to = span.attributes;
    to.reserve(6);
    say(to, "heddle.component", phase.component);
    if (phase.name == "queue") {
      return;
    }
    say_device(to, device_at(part, phase.to));
    if (phase.name == "load") {
      say(to, "gen_ai.request.model", request_.told->model);
    } else if (phase.name == "prefill") {
      say_number(to, "gen_ai.usage.input_tokens", part.prompt_tokens);
      say_number(to, "gen_ai.usage.cache_read.input_tokens", part.cached_tokens);
    } else if (phase.name == "decode") {
      say_number(to, "gen_ai.usage.output_tokens", part.completion_tokens);
    } else {
      say_forward(span, part);
    }
  }

  /// An engine was asked, over HTTP: it knows this span as its parent.
  void say_forward(Span& span, const TracePart& part) const {
    span.kind = SpanKind::kClient;
    span.id = request_.forward;
    say(span.attributes, "http.request.method", request_.method);
    if (request_.engine) {
      say(span.attributes, "server.address", request_.engine->host);
      say_number(span.attributes, "server.port", request_.engine->port);
    }
    if (part.times.first_token != Instant{}) {
      span.events.push_back({.name = "first byte", .at_ns = wall(part.times.first_token)});
    }
  }

  void add_event(Span& span, const TraceIncident& incident) const {
    trace::SpanEvent& event = span.events.emplace_back();
    event.name = core::name(incident.what.kind);
    event.at_ns = wall(incident.what.at);
    say_device(event.attributes, incident.device);
    if (incident.what.lasted > Duration{}) {
      say_number(
          event.attributes,
          "heddle.lasted_us",
          std::chrono::duration_cast<std::chrono::microseconds>(incident.what.lasted).count());
    }
  }

  const RequestSpan& request_;
  int status_;
  Instant ended_;
  Rng& rng_;
  std::vector<Span> spans_{};
};

/// The client's, where it sent one, and but one.
std::optional<trace::TraceContext> parent_of(const HttpFields& headers) {
  const std::string* found = nullptr;
  for (const auto& [name, value] : headers) {
    if (is_same_field(name, kTraceParent)) {
      if (found != nullptr) {
        return std::nullopt;
      }
      found = &value;
    }
  }
  return found == nullptr ? std::nullopt : trace::parse_traceparent(*found);
}

}  // namespace

RequestSpan begin_span(
    const HttpRequest& request, std::string_view route, double sample, Now now, Rng& rng) {
  RequestSpan span{.began = now.steady, .began_ns = now.wall_ns, .route = route};
  if (const std::optional<trace::TraceContext> parent = parent_of(request.headers)) {
    span.self = *parent;
    span.parent = parent->span;
  } else {
    span.self.trace = trace::draw_trace_id(rng);
    span.self.sampled = trace::is_among(span.self.trace, sample);
  }
  span.self.span = trace::draw_span_id(rng);
  span.forward = trace::draw_span_id(rng);
  span.trace_id = trace::hex(span.self.trace);
  if (span.self.sampled) {
    span.request_id = request.request_id;
    span.method = request.head_only ? "HEAD" : request.method;
    span.path = request.path.substr(0, kTextMost);
    span.client = request.peer;
    span.tls = request.tls;
  }
  return span;
}

void carry_on(const RequestSpan& request, HttpFields& headers) {
  const bool ours = request.parent == trace::SpanId{};
  std::erase_if(headers, [ours](const auto& field) {
    // What another says of its trace means nothing in ours.
    return is_same_field(field.first, kTraceParent) ||
           (ours && is_same_field(field.first, kTraceState));
  });
  trace::TraceContext parent = request.self;
  parent.span = request.forward;
  headers.emplace_back(kTraceParent, trace::traceparent(parent));
}

std::vector<trace::Span> tell_spans(const RequestSpan& request,
                                    int status,
                                    Instant ended,
                                    Rng& rng) {
  return Teller(request, status, ended, rng).tell();
}

}  // namespace heddle::gateway
