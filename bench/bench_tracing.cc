// What traces take of the loop for a request: the context is read, the spans are made of the
// request's trace and handed to the exporter, whose collector is away.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/request_span.h"
#include "gateway/tracer.h"

namespace {

using namespace heddle;
using namespace std::chrono_literals;

/// A chat on a device of another host, whose worker died once.
gateway::RequestTrace answered(Instant now, bool died) {
  gateway::TracePart part{.device = "h1/gpu0",
                          .restarts = died ? 1 : 0,
                          .prompt_tokens = 812,
                          .cached_tokens = 256,
                          .completion_tokens = 130,
                          .finished = {spec::FinishReason::kStop}};
  part.times = {.arrived = now,
                .load_began = now + 1ms,
                .dispatched = now + 2ms,
                .first_token = now + 3ms,
                .finished = now + 4ms};
  if (died) {
    part.incidents = {
        {.what = {.at = now + 3ms}, .device = "h2/gpu0"},
        {.what = {.at = now + 3ms, .kind = core::IncidentKind::kResumed}, .device = "h1/gpu0"}};
  }
  return {.request_id = "0123456789abcde",
          .answer_id = "chatcmpl-0123456789abcdef01234567",
          .model = "meta-llama/Llama-3.1-8B-Instruct",
          .endpoint = "/v1/chat/completions",
          .status = 200,
          .parts = {std::move(part)}};
}

/// As the gateway does it. `sample` of the requests are kept.
void request(benchmark::State& state, double sample, bool died) {
  Metrics metrics;
  auto tracer = gateway::Tracer::start(
      {.collector = HttpAddress{.port = 1, .base_path = "/v1/traces"}, .sample = sample},
      {.version = "1", .machine = "bench"},
      Rng(1),
      metrics);
  HEDDLE_CHECK(tracer.has_value());
  const gateway::HttpRequest asked{.method = "POST",
                                   .path = "/v1/chat/completions",
                                   .headers = {{"host", "models.example"},
                                               {"accept", "*/*"},
                                               {"content-type", "application/json"},
                                               {"authorization", "Bearer secret"}},
                                   .request_id = "0123456789abcde",
                                   .peer = "10.0.0.17"};
  const auto trace = std::make_shared<gateway::RequestTrace>(answered(steady_now(), died));
  for (auto _ : state) {
    const auto span = (*tracer)->begin(asked, "/v1/chat/completions", steady_now());
    span->told = trace;
    (*tracer)->end(*span, 200, steady_now());
  }
}
BENCHMARK_CAPTURE(request, kept, 1.0, false);
BENCHMARK_CAPTURE(request, kept_of_a_worker_that_died, 1.0, true);
BENCHMARK_CAPTURE(request, not_kept, 0.0, false);

}  // namespace
