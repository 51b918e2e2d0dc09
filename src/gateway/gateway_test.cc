#include "gateway/gateway.h"

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;

TEST_F(GatewayTest, UnknownPathsAndMethodsAreToldTheRightOnes) {
  start();
  const TestResponse unknown = call("GET", "/v1/chat/completion");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("/v1/chat/completions"));
  const TestResponse wrong = call("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  const TestResponse options = call("OPTIONS", "/v1/models");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  const TestResponse head = call("HEAD", "/v1/models");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
}

TEST_F(GatewayTest, KeysAreAskedForWhereThereAreSome) {
  config.api_keys = {{.key = "sesame"}, {.key = "other"}};
  start();
  const TestResponse refused = call("GET", "/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(refused.headers.contains("www-authenticate"));
  EXPECT_EQ(nlohmann::json::parse(refused.body)["error"]["type"], "authentication_error");
  EXPECT_EQ(call("GET", "/v1/models", "", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(call("GET", "/v1/models", "", "Authorization: Bearer sesame\r\n").status, 200);
  EXPECT_EQ(call("GET", "/v1/models", "", "X-Api-Key: other\r\n").status, 200);
  EXPECT_EQ(call("POST", "/models/unload", "{}").status, 401) << "admin paths as well";
  EXPECT_EQ(call("GET", "/v1/unknown").status, 401) << "nothing is told to strangers";
  for (const char* path : {"/health", "/healthz", "/readyz"}) {
    EXPECT_EQ(call("GET", path).status, 200) << path;
  }
}

TEST_F(GatewayTest, AKeyLimitsHowUrgentRequestsAre) {
  config.api_keys = {{.key = "any"}, {.key = "late", .priority = 5}};
  serving.reply = "x";
  start();
  const std::string urgent = chat_body(R"("priority":-3)");
  const std::string patient = chat_body(R"("priority":9)");
  (void)call("POST", "/v1/chat/completions", urgent, "X-Api-Key: any\r\n");
  (void)call("POST", "/v1/chat/completions", urgent, "X-Api-Key: late\r\n");
  (void)call("POST", "/v1/chat/completions", patient, "X-Api-Key: late\r\n");
  EXPECT_EQ(serving.started.at(0)->priority, -3);
  EXPECT_EQ(serving.started.at(1)->priority, 5);
  EXPECT_EQ(serving.started.at(2)->priority, 9);
}

// Whose prefixes are whose is told by something made of the key, and never by the key.
TEST_F(GatewayTest, EachKeyHasASaltOfItsOwn) {
  config.api_keys = {{.key = "mine"}, {.key = "others"}};
  serving.reply = "x";
  start();
  for (const std::string key : {"mine", "mine", "others"}) {
    (void)call("POST", "/v1/chat/completions", chat_body(), "X-Api-Key: " + key + "\r\n");
  }
  const std::string& mine = serving.started.at(0)->cache_salt;
  EXPECT_FALSE(mine.empty());
  EXPECT_EQ(mine.find("mine"), std::string::npos);
  EXPECT_EQ(serving.started.at(1)->cache_salt, mine);
  EXPECT_NE(serving.started.at(2)->cache_salt, mine);
}

TEST_F(GatewayTest, AnAddressThatIsTakenIsNamed) {
  start();
  config.listen[0].port = port;
  config.listen[0].host = "no.such.host.invalid";
  const auto failed = Gateway::start(loop, serving, metrics, config, options);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("no.such.host.invalid"));
}

TEST_F(GatewayTest, AReloadTakesOverModelsAndKeys) {
  start();
  config.models.erase(config.models.begin());
  config.api_keys = {{.key = "new"}};
  on_loop([this] { gateway->reload(config); });
  const std::string key = "Authorization: Bearer new\r\n";
  EXPECT_EQ(call("GET", "/v1/models").status, 401);
  EXPECT_EQ(call("GET", "/v1/models/tiny", "", key).status, 404);
  EXPECT_EQ(call("GET", "/v1/models/org/name:8b", "", key).status, 200);
}

TEST_F(GatewayTest, DrainingLetsRequestsEndAndTakesNoMore) {
  serving.reply.reset();
  start();
  TestClient running(port);
  running.send(TestClient::request("POST", "/v1/chat/completions", chat_body()));
  TestClient idle(port);
  EXPECT_EQ(idle.call("GET", "/readyz").status, 200);
  ASSERT_TRUE(serving.wait([&] { return serving.started.size() == 1; }));

  std::promise<void> drained;
  on_loop([&] { gateway->drain(std::chrono::seconds(60), [&drained] { drained.set_value(); }); });
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(TestClient(port).call("GET", "/readyz").status, 503) << "nobody else is let in";
  on_loop([&] { serving.emit(serving.started[0]->id, 0, {'o', 'k', FakeServing::kEos}); });
  const TestResponse answer = running.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("\"ok\""));
  EXPECT_TRUE(running.closed());
  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(GatewayTest, DrainingEndsWhatTakesTooLong) {
  serving.endless = true;
  start();
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat_body(R"("stream":true)")));
  EXPECT_EQ(client.read_head().status, 200);
  std::promise<void> drained;
  on_loop(
      [&] { gateway->drain(std::chrono::milliseconds(1), [&drained] { drained.set_value(); }); });
  std::string stream;
  for (std::string chunk = client.read_chunk(); !chunk.empty(); chunk = client.read_chunk()) {
    stream = chunk;
  }
  EXPECT_THAT(stream, HasSubstr("shutting down"));
  EXPECT_THAT(stream, HasSubstr("[DONE]"));
  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
}

}  // namespace
}  // namespace heddle::gateway
