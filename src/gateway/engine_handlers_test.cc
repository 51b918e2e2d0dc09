#include "gateway/engine_handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;
using Peer = FakeEngine::Peer;

class EngineHandlers : public ForwardingTest {
 protected:
  EngineHandlers() {
    status.model = ModelId(3);
    status.device = DeviceId(0);
    status.held_pages = 10;
    status.host_pages = 2;
    status.starts = 4;
    status.deaths = 1;
    status.costs[1] = {.times = 3, .out = 1500ms, .in = 250ms, .insufficient = 2, .failures = 1};
    status.trouble = "sleep freed too little";
    engine_config().command = {"serve", "--port", "1"};
    engine_config().upstream = {.port = 1, .base_path = "/v"};
  }
  void start_in(core::EngineState state) {
    status.state = state;
    if (state == core::EngineState::kSuspended) {
      status.level = spec::SuspendLevel::kSleep;
    }
    serving.engine_statuses = {status};
    start_with([](const Peer& peer, const std::string& request) {
      return peer.answer("of theirs " + request.substr(0, request.find(" HTTP")),
                         "Content-Type: text/plain; version=0.0.4\r\n");
    });
    on_loop([this] { config.models.back().engine->upstream.port = engine->port(); });
    on_loop([this] { gateway->reload(config); });
  }

  core::EngineStatus status{};
};

TEST_F(EngineHandlers, ModelsHaveTheStatesOfTheirEngines) {
  start_in(core::EngineState::kSuspended);
  nlohmann::json model = ask("GET", "/v1/models/far/away");
  EXPECT_EQ(model["status"]["value"], "sleeping");
  EXPECT_EQ(model["status"]["residency"], "suspended");
  EXPECT_EQ(model["status"]["level"], "sleep");
  nlohmann::json running = ask("GET", "/running")["running"];
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0]["model"], "far/away");
  EXPECT_EQ(running[0]["state"], "stopped");
  EXPECT_EQ(running[0]["residency"], "suspended");
  EXPECT_EQ(running[0]["cmd"], "serve --port 1");
  EXPECT_EQ(running[0]["proxy"], "http://127.0.0.1:" + std::to_string(engine->port()) + "/v");
  using State = core::EngineState;
  for (const auto& [state, value, process] :
       {std::tuple(State::kStarting, "loading", "starting"),
        std::tuple(State::kRunning, "loaded", "ready"),
        std::tuple(State::kSuspending, "sleeping", "stopping"),
        std::tuple(State::kResuming, "loading", "starting"),
        std::tuple(State::kStopping, "unloaded", "stopping")}) {
    on_loop([&, now = state] { serving.engine_statuses[0].state = now; });
    EXPECT_EQ(ask("GET", "/v1/models/far")["status"]["value"], value);
    EXPECT_EQ(ask("GET", "/running")["running"][0]["state"], process);
  }
  on_loop([&] { serving.engine_statuses[0].state = State::kStopped; });
  EXPECT_EQ(ask("GET", "/v1/models/far")["status"]["value"], "unloaded");
  EXPECT_TRUE(ask("GET", "/running")["running"].empty());
}

TEST_F(EngineHandlers, ListWhatSwappingCosts) {
  start_in(core::EngineState::kSuspended);
  const nlohmann::json listed = ask("GET", "/api/engines")["engines"];
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["model"], "far/away");
  EXPECT_EQ(listed[0]["device"], "cpu0");
  EXPECT_EQ(listed[0]["state"], "suspended");
  EXPECT_EQ(listed[0]["level"], "sleep");
  EXPECT_EQ(listed[0]["held_bytes"], 655360);
  EXPECT_EQ(listed[0]["deaths"], 1);
  EXPECT_EQ(listed[0]["trouble"], "sleep freed too little");
  ASSERT_EQ(listed[0]["costs"].size(), 1U);
  EXPECT_EQ(listed[0]["costs"][0]["level"], "sleep");
  EXPECT_EQ(listed[0]["costs"][0]["out_ms"], 1500);
  EXPECT_EQ(listed[0]["costs"][0]["in_ms"], 250);
}

TEST_F(EngineHandlers, Measure) {
  start_in(core::EngineState::kSuspended);
  (void)call("GET", "/metrics");
  const std::string text = call("GET", "/metrics").body;
  for (const std::string line :
       {"heddle_engine_state{model_name=\"far/away\",state=\"suspended\"} 1\n",
        "heddle_engine_state{model_name=\"far/away\",state=\"running\"} 0\n",
        "heddle_engine_bytes{model_name=\"far/away\",where=\"device\"} 655360\n",
        "heddle_engine_bytes{model_name=\"far/away\",where=\"host\"} 131072\n",
        "heddle_engine_swap_seconds{direction=\"out\",level=\"sleep\",model_name=\"far/away\"} "
        "1.5\n",
        "heddle_engine_swap_seconds{direction=\"in\",level=\"sleep\",model_name=\"far/away\"} "
        "0.25\n",
        "heddle_engine_starts_total{model_name=\"far/away\"} 4\n",
        "heddle_engine_deaths_total{model_name=\"far/away\"} 1\n",
        "heddle_engine_escalations_total{level=\"sleep\",model_name=\"far/away\"} 3\n",
        "heddle_device_time_seconds{device=\"cpu0\",state=\"serving\"} "}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(EngineHandlers, TheirMetricsAreTheirsAndWakeNobody) {
  start_in(core::EngineState::kSuspended);
  EXPECT_EQ(call("GET", "/metrics?model=far").status, 503);
  EXPECT_EQ(call("GET", "/metrics?model=nobody").status, 404);
  EXPECT_EQ(call("GET", "/metrics?model=tiny").status, 400);
  EXPECT_EQ(engine->connections(), 0);
  on_loop([&] { serving.engine_statuses[0].state = core::EngineState::kRunning; });
  const TestResponse answer = call("GET", "/metrics?model=far%2Faway");
  EXPECT_EQ(answer.body, "of theirs GET /v/metrics");
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4");
  EXPECT_TRUE(serving.forwarded.empty());
}

TEST_F(EngineHandlers, SleepAndWakeTheWayOfVllm) {
  start_in(core::EngineState::kRunning);
  EXPECT_FALSE(ask("GET", "/is_sleeping?model=far")["is_sleeping"].get<bool>());
  EXPECT_EQ(call("POST", "/sleep?level=1&model=far").status, 200);
  EXPECT_TRUE(serving.wait([&] { return serving.unloaded.contains(ModelId(3)); }));
  on_loop([&] { serving.engine_statuses[0].state = core::EngineState::kSuspended; });
  EXPECT_TRUE(ask("GET", "/is_sleeping?id=far")["is_sleeping"].get<bool>());
  EXPECT_EQ(call("POST", "/wake_up?model=far").status, 200);
  EXPECT_TRUE(serving.wait([&] { return serving.loaded.contains(ModelId(3)); }));
  EXPECT_TRUE(ask("GET", "/is_sleeping?model=tiny")["is_sleeping"].get<bool>());
  EXPECT_EQ(call("POST", "/sleep").status, 404);
}

}  // namespace
}  // namespace heddle::gateway
