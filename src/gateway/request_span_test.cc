#include "gateway/request_span.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;
using core::IncidentKind;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using trace::Span;
using trace::SpanKind;

constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr std::int64_t kWall = 1'700'000'000'000'000'000;  ///< At instant 1 s.
constexpr std::int64_t kMs = 1'000'000;

RequestSpan begin(const HttpFields& headers, double sample = 1) {
  Rng rng(1);
  return begin_span({.method = "POST",
                     .path = "/v1/chat/completions",
                     .headers = headers,
                     .request_id = "r1",
                     .peer = "10.0.0.9"},
                    "/v1/chat/completions",
                    sample,
                    {.steady = Instant(1s), .wall_ns = kWall},
                    rng);
}

/// What the attribute holds, as text; "-" where it is not there.
std::string said(const trace::Attributes& attributes, std::string_view key) {
  for (const trace::Attribute& attribute : attributes) {
    if (attribute.key != key) {
      continue;
    }
    if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      return *text;
    }
    if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
      return std::to_string(*number);
    }
    if (const auto* list = std::get_if<std::vector<std::string>>(&attribute.value)) {
      std::string all;
      for (const std::string& text : *list) {
        all += (all.empty() ? "" : ",") + text;
      }
      return all;
    }
    return std::get<bool>(attribute.value) ? "true" : "false";
  }
  return "-";
}

/// "queue 1..3 load 3..7", in milliseconds from the beginning of the request.
std::vector<std::string> laid_out(const std::vector<Span>& spans) {
  std::vector<std::string> all;
  for (const Span& span : spans) {
    all.push_back(span.name + " " + std::to_string((span.begin_ns - kWall) / kMs) + ".." +
                  std::to_string((span.end_ns - kWall) / kMs));
  }
  return all;
}

std::vector<Span> tell(const RequestSpan& request, int status = 200) {
  Rng rng(2);
  return tell_spans(request, status, Instant(1s + 40ms), rng);
}

/// A request that waited, had its model loaded, and was answered.
RequestTrace whole() {
  TracePart part{.device = "h1/gpu0",
                 .prompt_tokens = 12,
                 .cached_tokens = 4,
                 .completion_tokens = 5,
                 .finished = {spec::FinishReason::kStop}};
  part.times = {.arrived = Instant(1s + 1ms),
                .load_began = Instant(1s + 3ms),
                .dispatched = Instant(1s + 7ms),
                .first_token = Instant(1s + 20ms),
                .finished = Instant(1s + 39ms)};
  return {.request_id = "r1",
          .answer_id = "chatcmpl-1",
          .model = "chat",
          .endpoint = "/v1/chat/completions",
          .status = 200,
          .parts = {part}};
}

RequestSpan told(RequestTrace trace) {
  RequestSpan request = begin({});
  request.told = std::make_shared<RequestTrace>(std::move(trace));
  return request;
}

TEST(RequestSpan, GoesOnWithTheTraceOfItsClient) {
  const RequestSpan request = begin({{"TraceParent", kParent}}, 0);
  EXPECT_EQ(request.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(trace::hex(request.parent), "00f067aa0ba902b7");
  EXPECT_NE(request.self.span, request.parent);
  EXPECT_TRUE(request.self.sampled) << "the client decides";
  const RequestSpan unkept =
      begin({{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}}, 1);
  EXPECT_FALSE(unkept.self.sampled);
  EXPECT_EQ(unkept.trace_id, request.trace_id);
}

TEST(RequestSpan, BeginsATraceWhereItsClientHasNone) {
  for (const HttpFields& none : {HttpFields{},
                                 HttpFields{{"traceparent", "no"}},
                                 HttpFields{{"traceparent", kParent}, {"traceparent", kParent}}}) {
    const RequestSpan request = begin(none);
    EXPECT_EQ(request.trace_id.size(), 32U);
    EXPECT_NE(request.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(request.parent, trace::SpanId{});
    EXPECT_TRUE(request.self.sampled);
    EXPECT_FALSE(begin(none, 0).self.sampled);
  }
}

TEST(RequestSpan, AnEngineHearsOfTheSpanInWhichItIsAsked) {
  const RequestSpan ours = begin({});
  HttpFields headers{{"Accept", "*/*"}, {"Traceparent", "no"}, {"tracestate", "a=1"}};
  carry_on(ours, headers);
  const std::string expected = "00-" + ours.trace_id + "-" + trace::hex(ours.forward) + "-01";
  EXPECT_EQ(headers, (HttpFields{{"Accept", "*/*"}, {"traceparent", expected}}));
  const RequestSpan theirs = begin({{"traceparent", kParent}});
  headers = {{"traceparent", kParent}, {"tracestate", "a=1"}};
  carry_on(theirs, headers);
  EXPECT_EQ(headers[0], (std::pair<std::string, std::string>("tracestate", "a=1")));
  EXPECT_EQ(headers[1].second,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-" + trace::hex(theirs.forward) + "-01");
}

TEST(RequestSpan, TellsThePhasesInOrderAndWithinTheRequest) {
  const RequestSpan request = told(whole());
  const std::vector<Span> spans = tell(request);
  EXPECT_THAT(laid_out(spans),
              ElementsAre("POST /v1/chat/completions 0..40",
                          "queue 1..3",
                          "load 3..7",
                          "prefill 7..20",
                          "decode 20..39"));
  EXPECT_EQ(spans[0].kind, SpanKind::kServer);
  EXPECT_EQ(spans[0].id, request.self.span);
  for (std::size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].parent, request.self.span);
    EXPECT_EQ(spans[i].trace, request.self.trace);
    EXPECT_NE(spans[i].id, spans[i - 1].id);
  }
}

TEST(RequestSpan, TellsByTheConventions) {
  const std::vector<Span> spans = tell(told(whole()));
  const std::map<std::string, std::string> expected{{"http.request.method", "POST"},
                                                    {"http.route", "/v1/chat/completions"},
                                                    {"url.path", "/v1/chat/completions"},
                                                    {"url.scheme", "http"},
                                                    {"client.address", "10.0.0.9"},
                                                    {"http.response.status_code", "200"},
                                                    {"error.type", "-"},
                                                    {"heddle.request_id", "r1"},
                                                    {"heddle.parts", "-"},
                                                    {"gen_ai.operation.name", "chat"},
                                                    {"gen_ai.request.model", "chat"},
                                                    {"gen_ai.response.id", "chatcmpl-1"},
                                                    {"gen_ai.usage.input_tokens", "12"},
                                                    {"gen_ai.usage.cache_read.input_tokens", "4"},
                                                    {"gen_ai.usage.output_tokens", "5"},
                                                    {"gen_ai.response.finish_reasons", "stop"}};
  for (const auto& [key, value] : expected) {
    EXPECT_EQ(said(spans[0].attributes, key), value) << key;
  }
  EXPECT_FALSE(spans[0].failed);
  EXPECT_EQ(said(spans[1].attributes, "heddle.component"), "manager");
  EXPECT_EQ(said(spans[2].attributes, "heddle.component"), "host");
  EXPECT_EQ(said(spans[2].attributes, "heddle.host"), "h1");
  EXPECT_EQ(said(spans[2].attributes, "gen_ai.request.model"), "chat");
  EXPECT_EQ(said(spans[3].attributes, "heddle.component"), "worker");
  EXPECT_EQ(said(spans[3].attributes, "heddle.device"), "h1/gpu0");
  EXPECT_EQ(said(spans[4].attributes, "gen_ai.usage.output_tokens"), "5");
}

TEST(RequestSpan, ThatWaitedUntilItFailedHasNoMorePhases) {
  RequestTrace trace = whole();
  trace.status = 504;
  trace.error = "not ready";
  trace.parts[0].times.dispatched = trace.parts[0].times.first_token = {};
  trace.parts[0].completion_tokens = 0;
  const std::vector<Span> spans = tell(told(trace), 504);
  EXPECT_THAT(laid_out(spans),
              ElementsAre("POST /v1/chat/completions 0..40", "queue 1..3", "load 3..39"));
  EXPECT_TRUE(spans[0].failed);
  EXPECT_EQ(spans[0].failure, "not ready");
  EXPECT_EQ(said(spans[0].attributes, "error.type"), "504");
}

TEST(RequestSpan, ThatWasRefusedIsOneSpanAndNoFailureOfTheServer) {
  const std::vector<Span> spans = tell(begin({}), 404);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_FALSE(spans[0].failed);
  EXPECT_EQ(said(spans[0].attributes, "error.type"), "404");
  EXPECT_EQ(said(spans[0].attributes, "gen_ai.request.model"), "-");
}

TEST(RequestSpan, WhoseClientLeftHasNotFailed) {
  RequestTrace trace = whole();
  trace.status = 499;
  trace.error = "the client hung up";
  const std::vector<Span> streamed = tell(told(trace), 200);
  EXPECT_FALSE(streamed[0].failed);
  EXPECT_EQ(said(streamed[0].attributes, "error.type"), "client_left");
  const std::vector<Span> nothing = tell(told(trace), 499);
  EXPECT_EQ(said(nothing[0].attributes, "http.response.status_code"), "-");
}

TEST(RequestSpan, ThatFailedAfterItsHeadHasFailed) {
  RequestTrace trace = whole();
  trace.error = "the engine broke off";
  const std::vector<Span> spans = tell(told(trace), 200);
  EXPECT_TRUE(spans[0].failed);
  EXPECT_EQ(said(spans[0].attributes, "error.type"), "_OTHER");
}

TEST(RequestSpan, TellsWhatHappenedInThePhaseInWhichItDid) {
  RequestTrace trace = whole();
  trace.parts[0].device = "h2/gpu1";
  trace.parts[0].restarts = 1;
  trace.parts[0].incidents = {
      {.what = {.at = Instant(1s + 8ms), .kind = IncidentKind::kPreempted, .lasted = 2ms},
       .device = "h1/gpu0"},
      {.what = {.at = Instant(1s + 25ms), .kind = IncidentKind::kLost}, .device = "h1/gpu0"},
      {.what = {.at = Instant(1s + 30ms), .kind = IncidentKind::kResumed}, .device = "h2/gpu1"}};
  const std::vector<Span> spans = tell(told(trace));
  ASSERT_EQ(spans.size(), 5U);
  EXPECT_THAT(spans[1].events, IsEmpty());
  ASSERT_EQ(spans[3].events.size(), 1U);
  EXPECT_EQ(spans[3].events[0].name, "preempted");
  EXPECT_EQ(said(spans[3].events[0].attributes, "heddle.lasted_us"), "2000");
  ASSERT_EQ(spans[4].events.size(), 2U);
  EXPECT_EQ(spans[4].events[0].name, "lost");
  EXPECT_EQ(spans[4].events[0].at_ns, kWall + 25 * kMs);
  EXPECT_EQ(said(spans[4].events[0].attributes, "heddle.device"), "h1/gpu0");
  EXPECT_EQ(spans[4].events[1].name, "resumed");
  EXPECT_EQ(said(spans[4].events[1].attributes, "heddle.host"), "h2");
  EXPECT_EQ(said(spans[3].attributes, "heddle.device"), "h1/gpu0") << "there it had been";
  EXPECT_EQ(said(spans[4].attributes, "heddle.device"), "h2/gpu1");
  EXPECT_EQ(said(spans[0].attributes, "heddle.restarts"), "1");
}

TEST(RequestSpan, ThatWasForwardedHasTheSpanThatTheEngineKnows) {
  RequestSpan request = told(whole());
  request.asked_engine = true;
  request.engine = HttpAddress{.host = "127.0.0.1", .port = 5800};
  const std::vector<Span> spans = tell(request);
  EXPECT_THAT(
      laid_out(spans),
      ElementsAre("POST /v1/chat/completions 0..40", "queue 1..3", "load 3..7", "forward 7..39"));
  EXPECT_EQ(spans[3].kind, SpanKind::kClient);
  EXPECT_EQ(spans[3].id, request.forward);
  EXPECT_EQ(said(spans[3].attributes, "server.port"), "5800");
  ASSERT_EQ(spans[3].events.size(), 1U);
  EXPECT_EQ(spans[3].events[0].name, "first byte");
}

TEST(RequestSpan, OfManyPromptsTheFirstAreTold) {
  RequestTrace trace = whole();
  trace.endpoint = "/v1/embeddings";
  trace.parts[0].completion_tokens = 0;
  trace.parts.resize(1000, trace.parts[0]);
  const std::vector<Span> spans = tell(told(trace));
  EXPECT_EQ(spans.size(), 1U + 16 * 3);
  EXPECT_EQ(said(spans[0].attributes, "heddle.parts"), "1000");
  EXPECT_EQ(said(spans[0].attributes, "gen_ai.usage.input_tokens"), "12000");
  EXPECT_EQ(said(spans[0].attributes, "gen_ai.response.finish_reasons"), "-");
  EXPECT_EQ(said(spans[4].attributes, "heddle.part"), "1");
}

TEST(RequestSpan, WhatClientsWriteIsCutOff) {
  Rng rng(3);
  const RequestSpan request = begin_span({.method = "GET", .path = std::string(5000, 'x')},
                                         "/upstream/{id}",
                                         1,
                                         {.steady = Instant(1s), .wall_ns = kWall},
                                         rng);
  EXPECT_EQ(said(tell(request)[0].attributes, "url.path").size(), 256U);
}

}  // namespace
}  // namespace heddle::gateway
