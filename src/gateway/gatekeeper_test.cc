#include "gateway/gatekeeper.h"

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using config::Role;
using testing::HasSubstr;
using testing::Not;

/// A gateway with a key of each role, and two for inference.
class GatekeeperTest : public GatewayTest {
 protected:
  GatekeeperTest() {
    config.api_keys = {{.key = "ask"},
                       {.key = "too"},
                       {.key = "look", .role = Role::kMetrics},
                       {.key = "rule", .name = "operators", .role = Role::kAdmin}};
    serving.reply = "x";
  }

  [[nodiscard]] TestResponse with(const std::string& key,
                                  const std::string& method,
                                  const std::string& path,
                                  const std::string& body = {},
                                  const std::string& more = {}) const {
    return call(method, path, body, "Authorization: Bearer " + key + "\r\n" + more);
  }
  [[nodiscard]] int status(const std::string& key,
                           const std::string& method,
                           const std::string& path) const {
    return with(key, method, path).status;
  }
};

TEST_F(GatekeeperTest, EachRoleHasItsOwnAndAnAdminAll) {
  start();
  for (const char* path : {"/v1/models", "/version", "/running"}) {
    for (const char* key : {"ask", "look", "rule"}) {
      EXPECT_EQ(status(key, "GET", path), 200) << key << " " << path;
    }
  }
  for (const char* path :
       {"/metrics", "/api/devices", "/api/hosts", "/api/engines", "/api/forecasts"}) {
    EXPECT_EQ(status("ask", "GET", path), 403) << path;
    EXPECT_EQ(status("look", "GET", path), 200) << path;
    EXPECT_EQ(status("rule", "GET", path), 200) << path;
  }
  for (const char* path : {"/logs", "/api/decisions"}) {
    EXPECT_EQ(status("ask", "GET", path), 403) << path;
    EXPECT_EQ(status("look", "GET", path), 403) << path;
    EXPECT_EQ(status("rule", "GET", path), 200) << path;
  }
  EXPECT_EQ(with("ask", "POST", "/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(with("look", "POST", "/v1/chat/completions", chat_body()).status, 403);
  EXPECT_EQ(with("rule", "POST", "/v1/chat/completions", chat_body()).status, 200);
}

TEST_F(GatekeeperTest, OnlyAnAdminChangesAnything) {
  start();
  for (const char* path : {"/unload",
                           "/models/load",
                           "/models/unload",
                           "/api/models/unload",
                           "/api/hosts/drain",
                           "/api/hosts/undrain",
                           "/api/configuration",
                           "/api/models/unload/tiny",
                           "/sleep",
                           "/wake_up",
                           "/upstream/tiny/x"}) {
    EXPECT_EQ(status("ask", "POST", path), 403) << path;
    EXPECT_EQ(status("look", "POST", path), 403) << path;
    EXPECT_NE(status("rule", "POST", path), 403) << path;
  }
}

TEST_F(GatekeeperTest, AKeyOfTheWrongRoleIsToldTheRightOne) {
  start();
  const TestResponse refused = with("ask", "GET", "/logs");
  const auto error = nlohmann::json::parse(refused.body)["error"];
  EXPECT_EQ(error["code"], "insufficient_permissions");
  EXPECT_EQ(error["message"],
            "GET /logs needs a key of the role admin; this key has the role inference");
  EXPECT_THAT(with("ask", "GET", "/metrics").body, HasSubstr("role metrics or admin"));
  EXPECT_EQ(status("wrong", "GET", "/logs"), 401);
  EXPECT_EQ(status("ask", "GET", "/nothing"), 404);
  EXPECT_EQ(status("ask", "GET", "/unload"), 405);
}

TEST_F(GatekeeperTest, AKeySeesItsOwnRequests) {
  start();
  const std::string named = "X-Request-Id: same\r\n";
  (void)with("ask", "POST", "/v1/chat/completions", chat_body(), named);
  (void)with("too", "POST", "/v1/completions", R"({"model":"tiny","prompt":"a"})", named);
  const auto listed = [this](const std::string& key) {
    return nlohmann::json::parse(with(key, "GET", "/api/requests").body)["requests"];
  };
  ASSERT_EQ(listed("ask").size(), 1U);
  EXPECT_EQ(listed("ask")[0]["endpoint"], "/v1/chat/completions");
  EXPECT_EQ(listed("rule").size(), 2U);
  EXPECT_THAT(with("ask", "GET", "/api/requests/same").body, HasSubstr("/v1/chat/completions"));
  EXPECT_THAT(with("too", "GET", "/api/requests/same").body, HasSubstr("/v1/completions"));
  const std::string answer = listed("too")[0]["answer_id"];
  EXPECT_EQ(status("ask", "GET", "/api/requests/" + answer), 404);
  EXPECT_EQ(status("rule", "GET", "/api/requests/" + answer), 200);
  EXPECT_EQ(status("look", "GET", "/api/requests"), 403);
}

TEST_F(GatekeeperTest, WithoutKeysEverybodyIsAnAdmin) {
  config.api_keys.clear();
  start();
  EXPECT_EQ(call("GET", "/logs").status, 200);
  EXPECT_EQ(call("POST", "/unload").status, 200);
}

TEST_F(GatekeeperTest, AReloadTakesRolesHostsAndOrigins) {
  start();
  EXPECT_EQ(status("ask", "GET", "/logs"), 403);
  const std::string page = "Origin: https://chat.example\r\n";
  EXPECT_EQ(with("ask", "GET", "/v1/models", "", page).status, 403);
  config.api_keys[0].role = Role::kAdmin;
  config.cors_origins = {"https://chat.example"};
  config.allowed_hosts = {"models.example"};
  on_loop([this] { gateway->reload(config); });
  EXPECT_EQ(status("ask", "GET", "/logs"), 200);
  const TestResponse let_in = with("ask", "GET", "/v1/models", "", page);
  EXPECT_EQ(let_in.status, 200);
  EXPECT_EQ(let_in.headers.at("access-control-allow-origin"), "https://chat.example");
  TestClient client(port);
  client.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.read().status, 403);
}

TEST_F(GatekeeperTest, EveryAnswerToAConfiguredOriginIsReadable) {
  config.cors_origins = {"https://chat.example"};
  start();
  const std::string page = "Origin: https://chat.example\r\n";
  const auto readable = [](const TestResponse& response) {
    const auto found = response.headers.find("access-control-allow-origin");
    return found != response.headers.end() && found->second == "https://chat.example";
  };
  EXPECT_TRUE(readable(call("GET", "/v1/models", "", page))) << "401";
  EXPECT_TRUE(readable(with("ask", "GET", "/logs", "", page))) << "403";
  EXPECT_TRUE(readable(with("ask", "GET", "/nothing", "", page))) << "404";
  EXPECT_TRUE(
      readable(with("ask", "POST", "/v1/chat/completions", chat_body(R"("stream":true)"), page)));
  const TestResponse preflight =
      call("OPTIONS", "/v1/models", "", page + "Access-Control-Request-Method: GET\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(readable(preflight));
  const TestResponse foreign = with("ask", "GET", "/v1/models", "", "Origin: null\r\n");
  EXPECT_EQ(foreign.status, 403);
  EXPECT_FALSE(foreign.headers.contains("access-control-allow-origin"));
}

TEST_F(GatekeeperTest, OneKeyLeavesRoomForAnother) {
  config.limits.queue = 16;
  serving.reply.reset();
  start();
  std::vector<std::unique_ptr<TestClient>> greedy;
  const auto ask_as = [](TestClient& client, const std::string& key) {
    client.send(TestClient::request(
        "POST", "/v1/chat/completions", chat_body(), "Authorization: Bearer " + key + "\r\n"));
  };
  for (std::size_t i = 0; i < 14; ++i) {
    ask_as(*greedy.emplace_back(std::make_unique<TestClient>(port)), "ask");
    ASSERT_TRUE(serving.wait([&] { return serving.started.size() == i + 1; }));
  }
  const TestResponse refused = with("ask", "POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("this client has 14 requests"));
  TestClient other(port);
  ask_as(other, "too");
  EXPECT_TRUE(serving.wait([&] { return serving.started.size() == 15; }));
  greedy[0]->hang_up();
  ASSERT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
  TestClient again(port);
  ask_as(again, "ask");
  EXPECT_TRUE(serving.wait([&] { return serving.started.size() == 16; })) << "its place is free";
}

}  // namespace
}  // namespace heddle::gateway
