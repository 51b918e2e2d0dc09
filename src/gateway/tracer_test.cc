#include "gateway/tracer.h"

#include <future>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A gateway whose collector takes what the gateway sends when it ends.
class TracerTest : public ForwardingTest {
 protected:
  TracerTest() {
    config.tracing.collector =
        HttpAddress{.host = "127.0.0.1", .port = collector.port(), .base_path = "/v1/traces"};
    config.tracing.sample = 0;
    serving.reply = "ok";
  }

  /// Ends the gateway, and gives the spans that it sent.
  std::vector<json> spans() {
    std::promise<void> drained;
    on_loop(
        [&] { gateway->drain(Duration(std::chrono::seconds(10)), [&] { drained.set_value(); }); });
    drained.get_future().wait();
    const std::lock_guard lock(mutex);
    std::vector<json> all;
    for (const std::string& request : heard) {
      const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4));
      for (const json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        all.push_back(span);
      }
    }
    return all;
  }
  [[nodiscard]] static std::string parent() {
    return std::string("traceparent: ") + kParent + "\r\n";
  }

  std::mutex mutex{};
  std::vector<std::string> heard{};  ///< By the collector.
  FakeEngine collector{[this](const FakeEngine::Peer& peer, const std::string& request) {
    const std::lock_guard lock(mutex);
    heard.push_back(request);
    return peer.answer("{}");
  }};
};

TEST_F(TracerTest, SendsTheSpansOfARequestWithTheTraceOfItsClient) {
  start();
  const TestResponse answer = call("POST", "/v1/chat/completions", chat_body(), parent());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, Not(HasSubstr(kTrace)));
  const json requests = ask("GET", "/api/requests");
  EXPECT_EQ(requests["requests"][0]["trace_id"], kTrace);
  const std::vector<json> sent = spans();
  ASSERT_GE(sent.size(), 2U);
  EXPECT_EQ(sent[0]["name"], "POST /v1/chat/completions");
  EXPECT_EQ(sent[0]["parentSpanId"], "00f067aa0ba902b7");
  for (const json& span : sent) {
    EXPECT_EQ(span["traceId"], kTrace);
  }
  EXPECT_EQ(sent[1]["parentSpanId"], sent[0]["spanId"]);
}

TEST_F(TracerTest, SendsNothingOfWhatIsNotSampled) {
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(ask("GET", "/api/requests")["requests"][0]["trace_id"].get<std::string>().size(), 32U)
      << "it has a trace all the same";
  EXPECT_TRUE(spans().empty());
}

TEST_F(TracerTest, ARefusedRequestIsASpan) {
  start();
  ASSERT_EQ(
      call("POST", "/v1/chat/completions", R"({"model":"none","messages":[]})", parent()).status /
          100,
      4);
  ASSERT_EQ(call("GET", "/v1/models", "", parent()).status, 200);
  const std::vector<json> sent = spans();
  ASSERT_EQ(sent.size(), 1U) << "listings ask no model";
  EXPECT_FALSE(sent[0].contains("status")) << "the client was wrong";
}

TEST_F(TracerTest, AnEngineIsToldOfTheTrace) {
  std::string asked;
  start_with([&asked](const FakeEngine::Peer& peer, const std::string& request) {
    asked = request;
    return peer.answer("{}");
  });
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat(), parent()).status, 200);
  const std::vector<json> sent = spans();
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[2]["name"], "forward");
  EXPECT_THAT(asked,
              HasSubstr("traceparent: 00-" + std::string(kTrace) + "-" +
                        sent[2]["spanId"].get<std::string>() + "-01\r\n"));
}

TEST_F(TracerTest, AReloadTakesOverThePartThatIsKept) {
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  config.tracing.sample = 1;
  on_loop([this] { gateway->reload(config); });
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body()).status, 200);
  const std::string kept = ask("GET", "/api/requests")["requests"][0]["trace_id"];
  const std::vector<json> sent = spans();
  ASSERT_FALSE(sent.empty());
  for (const json& span : sent) {
    EXPECT_EQ(span["traceId"], kept);
  }
}

TEST_F(TracerTest, IsOffWithoutACollector) {
  config.tracing.collector.reset();
  start();
  ASSERT_EQ(call("POST", "/v1/chat/completions", chat_body(), parent()).status, 200);
  EXPECT_TRUE(ask("GET", "/api/requests")["requests"][0]["trace_id"].is_null());
  EXPECT_THAT(call("GET", "/metrics").body, Not(HasSubstr("heddle_trace_")));
}

}  // namespace
}  // namespace heddle::gateway
