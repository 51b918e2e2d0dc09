#include "gateway/tracer.h"

#include <chrono>
#include <utility>

#include "base/check.h"

#include <unistd.h>

namespace heddle::gateway {

namespace {

std::int64_t wall_clock_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// By OpenTelemetry's names.
trace::Attributes resource_of(const std::string& service, const Tracer::Self& self, Rng& rng) {
  return {{.key = "service.name", .value = service},
          {.key = "service.version", .value = self.version},
          {.key = "service.instance.id", .value = trace::hex(trace::draw_trace_id(rng))},
          {.key = "host.name", .value = self.machine},
          {.key = "process.pid", .value = std::int64_t{getpid()}}};
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::start(const config::TracingConfig& config,
                                              const Self& self,
                                              Rng rng,
                                              Metrics& metrics) {
  HEDDLE_CHECK(config.collector.has_value());
  auto exporter = trace::Exporter::start({.collector = *config.collector,
                                          .headers = config.headers,
                                          .resource = resource_of(config.service, self, rng),
                                          .version = self.version},
                                         metrics);
  if (!exporter) {
    return exporter.error();
  }
  return std::unique_ptr<Tracer>(new Tracer(std::move(*exporter), config.sample, rng));
}

std::shared_ptr<RequestSpan> Tracer::begin(const HttpRequest& request,
                                           std::string_view route,
                                           Instant now) {
  return std::make_shared<RequestSpan>(
      begin_span(request, route, sample_, {.steady = now, .wall_ns = wall_clock_ns()}, rng_));
}

void Tracer::end(const RequestSpan& request, int status, Instant now) {
  if (request.self.sampled) {
    exporter_->add(tell_spans(request, status, now, rng_));
  }
}

}  // namespace heddle::gateway
