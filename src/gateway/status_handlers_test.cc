#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusHandlersTest : public GatewayTest {};

TEST_F(StatusHandlersTest, HealthAndVersion) {
  start();
  for (const char* path : {"/health", "/healthz", "/readyz"}) {
    EXPECT_EQ(ask("GET", path)["status"], "ok") << path;
  }
  EXPECT_EQ(ask("GET", "/version")["version"], "1.2.3");
  EXPECT_EQ(ask("GET", "/api/version")["version"], "1.2.3");
}

TEST_F(StatusHandlersTest, ReadinessSaysWhatIsWrong) {
  serving.wrong = {"device cpu0: its worker may hang", "weights do not come"};
  start();
  const TestResponse response = call("GET", "/readyz");
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("device cpu0: its worker may hang; weights do not come"));
  EXPECT_EQ(ask("GET", "/health")["status"], "ok");
  EXPECT_EQ(ask("GET", "/api/devices")["devices"][0]["trouble"], serving.wrong.front());
}

TEST_F(StatusHandlersTest, MetricsHaveTheNamesOfDashboards) {
  serving.reply = "ab";
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  const TestResponse response = call("GET", "/metrics");
  EXPECT_THAT(response.headers.at("content-type"), HasSubstr("text/plain; version=0.0.4"));
  for (const char* line :
       {"vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"} 1",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"tiny\"} 9",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 3",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 1",
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0",
        "vllm:kv_cache_usage_perc{device=\"cpu0\"} 0.25",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.25",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"org/name:8b\"} 0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"org/name:8b\"} 0",
        "heddle_model_load_failed{model_name=\"tiny\"} 0",
        "heddle_pages_held{device=\"cpu0\",kind=\"kv_own\"} 20",
        "heddle_pages_total{device=\"host\"} 50",
        "heddle_model_state{model_name=\"tiny\",state=\"absent\"} 1",
        "heddle_device_up{device=\"cpu0\"} 1",
        "heddle_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1"}) {
    EXPECT_THAT(response.body, HasSubstr(line));
  }
}

TEST_F(StatusHandlersTest, CountersOfOthersGrowByWhatIsNew) {
  serving.residency[ModelId(1)] = core::Residency::kServing;
  start();
  (void)call("GET", "/metrics");
  const std::string metrics = call("GET", "/metrics").body;
  for (const std::string line :
       {"heddle_model_loads_total{model_name=\"tiny\",reason=\"request\"} 2\n",
        "heddle_model_loads_total{model_name=\"tiny\",reason=\"operator\"} 1\n",
        "heddle_model_evictions_total{model_name=\"tiny\",reason=\"idle\"} 1\n",
        "heddle_request_recalls_total{model_name=\"tiny\"} 6\n",
        "heddle_prefix_cache_queried_tokens_total{device=\"cpu0\",model_name=\"tiny\"} 50\n",
        "vllm:prefix_cache_hits_total{device=\"cpu0\",model_name=\"tiny\"} 30\n",
        "heddle_prefix_cache_hit_tokens_total{device=\"cpu0\",model_name=\"tiny\"} 30\n",
        "heddle_prefix_cache_evicted_pages_total{device=\"cpu0\",reason=\"kv\"} 4\n",
        "heddle_prefix_cache_evicted_pages_total{device=\"cpu0\",reason=\"closed\"} 1\n",
        "heddle_kv_store_returned_tokens_total{device=\"cpu0\",model_name=\"tiny\"} 20\n",
        "heddle_kv_store_bytes{device=\"cpu0\",state=\"held\"} 327680\n",
        "heddle_kv_store_bytes{device=\"cpu0\",state=\"total\"} 524288\n",
        "heddle_kv_store_pages_total{device=\"cpu0\",what=\"kept\"} 9\n",
        "heddle_kv_store_pages_total{device=\"cpu0\",what=\"returned\"} 3\n",
        "heddle_kv_store_pages_total{device=\"cpu0\",what=\"displaced\"} 2\n",
        "heddle_worker_steps_total{device=\"cpu0\"} 70\n",
        "heddle_worker_suspected_total{device=\"cpu0\"} 6\n",
        "heddle_worker_hung_total{device=\"cpu0\",reason=\"stopped\"} 1\n",
        "heddle_worker_hung_total{device=\"cpu0\",reason=\"stuck\"} 4\n",
        "heddle_worker_late_steps_total{device=\"cpu0\"} 7\n",
        "heddle_worker_slow_steps_total{device=\"cpu0\"} 3\n",
        "heddle_worker_overrun_steps_total{device=\"cpu0\"} 2\n",
        "heddle_worker_copied_bytes_total{device=\"cpu0\",link=\"own\"} 300\n",
        "heddle_worker_copied_bytes_total{device=\"cpu0\",link=\"peer\"} 200\n",
        "heddle_worker_peer_assist_bytes_total{device=\"cpu0\"} 90\n",
        "heddle_worker_relayed_bytes_total{device=\"cpu0\"} 90\n",  // Old name.
        "heddle_device_others_bytes{device=\"cpu0\"} 1000\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
}

TEST_F(StatusHandlersTest, MetricsTellTheBlocksOfAModelThatWasAskedFor) {
  serving.reply = "ab";
  serving.residency[ModelId(1)] = serving.residency[ModelId(2)] = core::Residency::kServing;
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  // 64 KiB pages, weights of 1000 bytes; 64 numbers of bfloat16 for a token.
  const std::string name = "vllm:cache_config_info{block_size=\"512\",model_name=\"tiny\",";
  const std::string first = call("GET", "/metrics").body;
  EXPECT_THAT(first, HasSubstr(name + "num_gpu_blocks=\"99\"} 1\n"));
  EXPECT_THAT(first, Not(HasSubstr("block_size=\"512\",model_name=\"org")));
  on_loop([this] { serving.pages = 50; });
  const std::string second = call("GET", "/metrics").body;
  EXPECT_THAT(second, HasSubstr(name + "num_gpu_blocks=\"49\"} 1\n"));
  EXPECT_THAT(second, Not(HasSubstr("num_gpu_blocks=\"99\"")));
}

TEST_F(StatusHandlersTest, MetricsTellThatMoreTokensOfInt8FitABlock) {
  config.models[0].kv = spec::KvType::kI8;
  serving.reply = "ab";
  serving.residency[ModelId(1)] = serving.residency[ModelId(2)] = core::Residency::kServing;
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  EXPECT_THAT(call("GET", "/metrics").body, HasSubstr("block_size=\"819\",model_name=\"tiny\""));
}

TEST_F(StatusHandlersTest, DevicesShowPagesByKindOfLease) {
  start();
  const auto devices = ask("GET", "/api/devices");
  EXPECT_EQ(devices["devices"][0]["name"], "cpu0");
  EXPECT_EQ(devices["devices"][0]["pages_free"], 60);
  EXPECT_EQ(devices["devices"][0]["pages"]["kv_own"]["held"], 20);
  EXPECT_EQ(devices["devices"][0]["late_steps"], 7);
  EXPECT_EQ(devices["devices"][0]["slow_steps"], 3);
  EXPECT_EQ(devices["devices"][0]["overrun_steps"], 2);
  EXPECT_EQ(devices["devices"][0]["copied_bytes"], 500);
  EXPECT_EQ(devices["devices"][0]["peer_load_bytes"], 200);
  EXPECT_EQ(devices["devices"][0]["detoured_bytes"], 200);  // Old name.
  EXPECT_EQ(devices["devices"][0]["kept_bytes"], 30);
  EXPECT_EQ(devices["devices"][0]["kv_store"]["held"], 5);
  EXPECT_EQ(devices["devices"][0]["kv_store"]["returned_tokens"], 20);
  EXPECT_EQ(devices["devices"][0]["kv_store"]["kept_blocks"], 6);
  EXPECT_EQ(devices["devices"][0]["kv_store"]["declined_tokens"], 16);
  EXPECT_EQ(devices["devices"][0]["peer_assist_bytes"], 90);
  EXPECT_EQ(devices["devices"][0]["relayed_bytes"], 90);  // Old name.
  EXPECT_EQ(devices["devices"][0]["others_bytes"], 1000);
  EXPECT_EQ(devices["host"]["pages_total"], 50);
}

TEST_F(StatusHandlersTest, DevicesShowWhoseThePagesWere) {
  start();
  const auto samples = ask("GET", "/api/devices/history")["samples"];
  ASSERT_GE(samples.size(), 1U) << "one was taken at the start";
  EXPECT_EQ(samples[0]["memory"]["devices"][0]["name"], "cpu0");
  EXPECT_EQ(samples[0]["memory"]["host"]["pages_total"], 50);
  EXPECT_GE(samples[0]["age_ms"], 0);
}

TEST_F(StatusHandlersTest, DevicesShowWhoseThePagesAre) {
  start();
  const auto models = ask("GET", "/api/devices")["devices"][0]["models"];
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0]["model"], "tiny");
  EXPECT_EQ(models[0]["residency"], "serving");
  EXPECT_EQ(models[0]["external"], false);
  EXPECT_EQ(models[0]["foreign"], false);  // Old name.
  EXPECT_EQ(models[0]["staged"], false);
  EXPECT_EQ(models[0]["weights_pages"], 12);
  EXPECT_EQ(models[0]["kv_pages"], 20);
  EXPECT_EQ(models[0]["requests_running"], 2);
}

TEST_F(StatusHandlersTest, DevicesShowTheShardsOfModelsThatAreCut) {
  config.models[0].tensor_parallel = 2;
  serving.residency[ModelId(1)] = core::Residency::kServing;
  serving.peers = {DeviceId(1)};
  start();
  const auto device = ask("GET", "/api/devices")["devices"][0];
  EXPECT_EQ(device["shard"]["model"], "tiny");
  EXPECT_EQ(device["shard"]["rank"], 0);
  EXPECT_EQ(device["shard"]["ranks"], 2);
  ASSERT_EQ(device["shards"].size(), 1U);
  EXPECT_EQ(device["shards"][0], device["shard"]);
  EXPECT_EQ(ask("GET", "/running")["running"][0]["device"], "cpu0+");  // The other has no name.
}

TEST_F(StatusHandlersTest, DevicesShowTheStagesOfPipelinesThoughTheyAreNotConfigured) {
  serving.residency[ModelId(1)] = core::Residency::kServing;
  serving.peers = {DeviceId(1)};
  start();
  const auto device = ask("GET", "/api/devices")["devices"][0];
  EXPECT_EQ(device["stage"]["model"], "tiny");
  EXPECT_EQ(device["stage"]["stage"], 0);
  EXPECT_EQ(device["stage"]["stages"], 2);
  EXPECT_FALSE(device.contains("shard"));
}

TEST_F(StatusHandlersTest, TheIndexSaysWhatThisIs) {
  start();
  const std::string page = call("GET", "/").body;
  EXPECT_THAT(page, HasSubstr("is running"));
  EXPECT_THAT(page, HasSubstr("org/name:8b  absent"));
  EXPECT_THAT(page, HasSubstr("cpu0  up"));
}

}  // namespace
}  // namespace heddle::gateway
