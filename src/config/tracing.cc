#include "config/tracing.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "config/reader.h"

namespace heddle::config {

namespace {

constexpr std::string_view kPath = "/v1/traces";
constexpr std::uint16_t kGrpcPort = 4317;
constexpr std::string_view kWant = "want such as http://otel:4318";
/// What the exporter says itself.
constexpr std::array<std::string_view, 6> kOwn{
    "connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"};

/// The address of a collector, or what is wrong with it. `kPath` is appended where it is not there,
/// unless the address is known to be whole.
Result<HttpAddress> parse_collector(const std::string& text, bool whole) {
  if (!text.starts_with("http://") && !text.starts_with("https://")) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "\"" + text + "\" begins with neither http:// nor https://; " +
                            std::string(kWant)};
  }
  Result<HttpAddress> address = parse_http_address(text, {});
  if (!address) {
    return Error{.code = Code::kInvalidArgument,
                 .message = address.error().message + "; " + std::string(kWant)};
  }
  if (!whole && !address->base_path.ends_with(kPath)) {
    address->base_path += kPath;
  }
  return address;
}

bool is_header_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_header_value(std::string_view value) {
  return std::ranges::none_of(value,
                              [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7f; });
}

std::string lower(std::string text) {
  std::ranges::transform(
      text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

/// Never tells a value, which may be a secret.
void check_headers(Fields& f, const TracingConfig& tracing) {
  for (const auto& [name, value] : tracing.headers) {
    if (!is_header_name(name)) {
      f.reject("headers", "\"" + name + "\" is no name of a header; want such as Authorization");
    } else if (std::ranges::find(kOwn, lower(name)) != kOwn.end()) {
      f.reject("headers", name + " is what heddle says itself; leave it out");
    } else if (!is_header_value(value)) {
      f.reject("headers", "the value of " + name + " has more than one line; want one line");
    }
  }
}

std::optional<std::string> variable(const Environment& environment, const std::string& name) {
  std::optional<std::string> value = environment(name);
  return value && !value->empty() ? value : std::nullopt;
}

}  // namespace

TracingConfig tracing_of(const Environment& environment, std::vector<std::string>& warnings) {
  TracingConfig tracing;
  constexpr std::array<std::pair<const char*, bool>, 2> kEndpoints{
      std::pair("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", true),
      std::pair("OTEL_EXPORTER_OTLP_ENDPOINT", false)};
  const auto warn = [&warnings](const std::string& name, const std::string& why) {
    warnings.push_back(name + " of the environment is left out: " + why);
  };
  for (const auto& [name, whole] : kEndpoints) {
    const std::optional<std::string> text = variable(environment, name);
    if (!text || tracing.collector) {
      continue;
    }
    const Result<HttpAddress> address = parse_collector(*text, whole);
    if (address) {
      tracing.collector = *address;
    } else {
      warn(name, address.error().message);
    }
  }
  tracing.service = variable(environment, "OTEL_SERVICE_NAME").value_or(tracing.service);
  if (const auto text = variable(environment, "OTEL_TRACES_SAMPLER_ARG")) {
    if (const std::optional<double> sample = parse_fraction(*text)) {
      tracing.sample = *sample;
    } else {
      warn("OTEL_TRACES_SAMPLER_ARG", "\"" + *text + "\" is no number from 0 to 1");
    }
  }
  return tracing;
}

void declare_tracing(Fields& f, Config& config) {
  TracingConfig& tracing = config.tracing;
  f.section(
      {"tracing", "Send traces of requests to a collector of OpenTelemetry."}, [&](Fields& item) {
        std::string endpoint;
        item.text({"endpoint",
                   "URL of a collector that takes OTLP over HTTP, such as http://otel:4318; "
                   "/v1/traces is appended."},
                  endpoint);
        if (!endpoint.empty()) {
          const Result<HttpAddress> address = parse_collector(endpoint, /*whole=*/false);
          if (!address) {
            item.reject("endpoint", address.error().message);
          } else {
            tracing.collector = *address;
          }
        } else if (!tracing.collector) {
          item.reject("endpoint", "is missing: where the collector is; " + std::string(kWant));
        }
        item.fraction({"sample",
                       "Which part of the requests is traced, from 0 to 1, of clients whose "
                       "traceparent does not say."},
                      tracing.sample);
        item.text({"service", "What the server is called there."}, tracing.service);
        if (tracing.service.empty()) {
          item.reject("service", "is empty; want a name such as heddle");
        }
        item.named_texts({"headers", "Headers that the collector asks for, such as Authorization."},
                         tracing.headers);
        check_headers(item, tracing);
        if (tracing.collector && tracing.collector->port == kGrpcPort) {
          item.warn("endpoint",
                    "port 4317 is that of OTLP over gRPC, which heddle does not speak; collectors "
                    "take OTLP over HTTP at 4318");
        }
      });
}

}  // namespace heddle::config
