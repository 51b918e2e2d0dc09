#include "config/tracing.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Variables = std::map<std::string, std::string>;

Result<Config> parse(const std::string& text, const Variables& variables = {}) {
  const Environment environment = [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return parse_config(text, "/etc/heddle.yaml", environment, {.cores = {0}, .memory = 1U << 30U});
}

TEST(Tracing, IsOffUntilThereIsACollector) {
  const Result<Config> config = parse("models: {}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->tracing, TracingConfig());
  EXPECT_FALSE(config->tracing.collector);
}

TEST(Tracing, SaysWhereTracesGoAndWhich) {
  const Result<Config> config = parse(
      "tracing: {endpoint: 'https://otel.example/otlp/', sample: 0.25, service: edge,\n"
      "          headers: {Authorization: 'Bearer ${env.TOKEN}', X-Scope: 7}}",
      {{"TOKEN", "secret"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->tracing,
            (TracingConfig{.collector = HttpAddress{.host = "otel.example",
                                                    .port = 443,
                                                    .base_path = "/otlp/v1/traces",
                                                    .tls = true},
                           .sample = 0.25,
                           .service = "edge",
                           .headers = {{"Authorization", "Bearer secret"}, {"X-Scope", "7"}}}));
  EXPECT_EQ(parse("tracing: {endpoint: 'http://o:4318/v1/traces'}")->tracing.collector->base_path,
            "/v1/traces")
      << "whoever writes it, writes it once";
}

TEST(Tracing, WhatCannotBeMeantIsRefusedAndSecretsAreNotTold) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"tracing: {}", "tracing.endpoint: is missing"},
           {"tracing: {endpoint: /v1/traces}", "want such as http://otel:4318"},
           {"tracing: {endpoint: 'otel:4318'}", "neither http:// nor https://"},
           {"tracing: {endpoint: 'http://:4318'}", "names no host"},
           {"tracing: {endpoint: 'http://o?x'}", "more than a host, a port and a path"},
           {"tracing: {endpoint: 'http://o', sample: 2}",
            "tracing.sample: \"2\" is no number from 0 to 1; want such as 0.1"},
           {"tracing: {endpoint: 'http://o', sample: half}", "is no number from 0 to 1"},
           {"tracing: {endpoint: 'http://o', sample: nan}", "is no number from 0 to 1"},
           {"tracing: {endpoint: 'http://o', samples: 1}", "did you mean \"sample\""},
           {"tracing: {endpoint: 'http://o', service: ''}", "want a name"},
           {"tracing: {endpoint: 'http://o', headers: {'a b': hidden}}", "is no name of a header"},
           {"tracing: {endpoint: 'http://o', headers: {Host: hidden}}", "heddle says itself"},
           {"tracing: {endpoint: 'http://o', headers: {A: \"hidden\\nB: c\"}}", "want one line"},
           {"tracing: {endpoint: 'http://o', headers: {A: [hidden]}}", "want a string"}}) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(says)) << text;
    EXPECT_THAT(config.error().message, Not(HasSubstr("hidden"))) << text;
  }
}

TEST(Tracing, ThePortOfGrpcIsProbablyNotMeant) {
  const Result<Config> config = parse("tracing: {endpoint: 'http://otel:4317'}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("4318")));
}

TEST(Tracing, TheEnvironmentSaysWhatTheFileDoesNot) {
  const Variables variables{{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"},
                            {"OTEL_SERVICE_NAME", "theirs"},
                            {"OTEL_TRACES_SAMPLER_ARG", "0.5"}};
  const Result<Config> bare = parse("models: {}", variables);
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->tracing.collector->url(), "http://a:4318/v1/traces");
  EXPECT_EQ(bare->tracing.service, "theirs");
  EXPECT_EQ(bare->tracing.sample, 0.5);
  const Result<Config> both = parse("tracing: {sample: 1, service: ours}", variables);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->tracing.collector->url(), "http://a:4318/v1/traces");
  EXPECT_EQ(both->tracing.service, "ours");
  EXPECT_EQ(both->tracing.sample, 1);
  EXPECT_EQ(parse("tracing: {endpoint: 'http://b'}", variables)->tracing.collector->host, "b");
}

TEST(Tracing, TheVariableOfTracesIsTakenAsItIs) {
  const Result<Config> config =
      parse("models: {}",
            {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"},
             {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:4318/spans"}});
  EXPECT_EQ(config->tracing.collector->url(), "http://b:4318/spans");
}

TEST(Tracing, WhatIsWrongInTheEnvironmentIsAWarning) {
  const Result<Config> config = parse("models: {}",
                                      {{"OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4318"},
                                       {"OTEL_SERVICE_NAME", ""},
                                       {"OTEL_TRACES_SAMPLER_ARG", "many"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->tracing, TracingConfig());
  EXPECT_THAT(
      config->warnings,
      ElementsAre(HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT"), HasSubstr("OTEL_TRACES_SAMPLER_ARG")));
  EXPECT_THAT(parse("models: {}")->warnings, IsEmpty());
}

}  // namespace
}  // namespace heddle::config
