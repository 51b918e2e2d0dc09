#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/document.h"
#include "config/fields.h"

namespace heddle::config {

/// What OpenTelemetry's variables of the environment say: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else
/// OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER_ARG. What is wrong with one
/// is a warning, as nobody wrote it for heddle.
[[nodiscard]] TracingConfig tracing_of(const Environment& environment,
                                       std::vector<std::string>& warnings);

/// Names the key that says where traces go: tracing. What it leaves out stays as it is.
void declare_tracing(Fields& fields, Config& config);

}  // namespace heddle::config
