#include "gateway/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(GatewayMetrics, SplitTheTimeToTheFirstToken) {
  Metrics registry;
  GatewayMetrics metrics(registry);
  core::RequestRecord record{.prompt = {1, 2}, .generated = {{3}}, .restarts = 2};
  record.times = {.arrived = Instant(1s),
                  .load_began = Instant(2s),
                  .dispatched = Instant(5s),
                  .first_token = Instant(9s),
                  .finished = Instant(10s)};
  metrics.ended("m", tell(record, ""), "length");
  const std::string text = metrics.expose();
  const std::string name = "heddle_time_to_first_token_phase_seconds_sum{model_name=\"m\",phase=";
  EXPECT_THAT(text, HasSubstr(name + "\"queue\"} 1"));
  EXPECT_THAT(text, HasSubstr(name + "\"load\"} 3"));
  EXPECT_THAT(text, HasSubstr(name + "\"prefill\"} 4"));
  EXPECT_THAT(text,
              HasSubstr("vllm:e2e_request_latency_seconds_sum{engine=\"0\",model_name=\"m\"} 9"));
  EXPECT_THAT(text, HasSubstr("heddle_request_restarts_total{model_name=\"m\"} 2"));
  for (const char* line : {"vllm:request_prefill_time_seconds_sum{engine=\"0\",model_name=\"m\"} 4",
                           "vllm:request_decode_time_seconds_sum{engine=\"0\",model_name=\"m\"} 1",
                           "vllm:request_prompt_tokens_sum{engine=\"0\",model_name=\"m\"} 2",
                           "vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"m\"} 1",
                           "vllm:request_generation_tokens_bucket{engine=\"0\",model_name=\"m\","
                           "le=\"1\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text,
              HasSubstr("vllm:request_time_per_output_token_seconds_count{engine=\"0\","
                        "model_name=\"m\"} 0"))
      << "one token has no next";
  metrics.forget("m");
  EXPECT_THAT(metrics.expose(), testing::Not(HasSubstr("model_name=\"m\"")));
}

TEST(GatewayMetrics, WhatDidNotHappenIsNotMeasured) {
  Metrics registry;
  GatewayMetrics metrics(registry);
  core::RequestRecord record;
  record.times.arrived = Instant(1s);
  metrics.ended("m", tell(record, ""), "abort");
  const std::string text = metrics.expose();
  EXPECT_THAT(text, HasSubstr("finished_reason=\"abort\""));
  EXPECT_THAT(text,
              HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 0"));
  EXPECT_THAT(text,
              HasSubstr("vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"m\"} 0"));
}

TEST(GatewayMetrics, AModelThatNobodyAskedStandsAtZero) {
  Metrics registry;
  GatewayMetrics metrics(registry);
  metrics.token_gap("m", 1s);  // As soon as anything is told of it.
  const std::string text = metrics.expose();
  for (const char* name : {"vllm:prompt_tokens_total", "vllm:request_queue_time_seconds_count"}) {
    EXPECT_THAT(text, HasSubstr(std::string(name) + "{engine=\"0\",model_name=\"m\"} 0"));
  }
  EXPECT_THAT(text,
              HasSubstr("vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1"));
}

}  // namespace
}  // namespace heddle::gateway
