#include "gateway/proxy_handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Peer = FakeEngine::Peer;

class ProxyHandlers : public ForwardingTest {
 protected:
  void start_echo() {
    start_with([](const Peer& peer, const std::string& request) {
      return peer.answer(request.substr(0, request.find(' ', request.find(' ') + 1)));
    });
  }
};

TEST_F(ProxyHandlers, ForwardWhatEnginesHave) {
  start_echo();
  for (const char* path : {"/v1/chat/completions",
                           "/v1/completions",
                           "/v1/embeddings",
                           "/v1/responses",
                           "/tokenize",
                           "/detokenize",
                           "/v1/rerank",
                           "/score",
                           "/v1/messages",
                           "/v1/messages/count_tokens",
                           "/api/chat",
                           "/api/generate",
                           "/api/embed",
                           "/v1/audio/speech",
                           "/infill",
                           "/completion"}) {
    EXPECT_EQ(call("POST", path, R"({"model":"far/away"})").body, "POST " + std::string(path));
  }
}

TEST_F(ProxyHandlers, OurModelsStayOurs) {
  start_echo();
  serving.reply = "hello";
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat_body())["choices"][0]["message"]["content"],
            "hello");
  const TestResponse none = call("POST", "/pooling", R"({"model":"tiny"})");
  EXPECT_EQ(none.status, 501);
  EXPECT_EQ(nlohmann::json::parse(none.body)["error"]["code"], "not_supported");
  EXPECT_EQ(call("GET", "/upstream/tiny/health").status, 501);
  EXPECT_EQ(engine->connections(), 0);
}

TEST_F(ProxyHandlers, SayWhatIsWrong) {
  start_echo();
  EXPECT_EQ(call("POST", "/pooling", R"({"model":"nobody"})").status, 404);
  EXPECT_EQ(call("POST", "/pooling", R"({"x":1})").status, 400);
  EXPECT_EQ(call("POST", "/pooling", "nonsense").status, 400);
  EXPECT_EQ(call("POST", "/v1/chat/completions", "nonsense").status, 400);
  EXPECT_EQ(call("GET", "/upstream/nobody/x").status, 404);
  EXPECT_EQ(call("GET", "/v1/rerank").status, 405);
}

TEST_F(ProxyHandlers, PathsThatAreIgnoredStartNoEngine) {
  config.ignore_paths = {"^/ws$", R"(\.js$)"};
  start_echo();
  for (const char* path : {"/upstream/far/away/app.js", "/upstream/far/ws"}) {
    const TestResponse refused = call("GET", path);
    EXPECT_EQ(refused.status, 409) << path;
    EXPECT_THAT(refused.body, HasSubstr("upstream.ignorePaths"));
  }
  EXPECT_EQ(call("GET", "/upstream/far/away/app.html").body, "GET /app.html");
  on_loop([this] {
    serving.engine_statuses = {{.model = ModelId(3), .state = core::EngineState::kRunning}};
  });
  EXPECT_EQ(call("GET", "/upstream/far/away/app.js").body, "GET /app.js");
}

TEST_F(ProxyHandlers, PathsWithStepsAreNotForwarded) {
  start_echo();
  for (const char* path : {"/v1/audio/../../slots",
                           "/v1/audio/%2e%2e/%2E%2e/shutdown",
                           "/v1/audio/./speech",
                           "/v1/audio/.."}) {
    EXPECT_EQ(call("POST", path, R"({"model":"far/away"})").status, 404) << path;
  }
  EXPECT_EQ(call("POST", "/v1/audio/..speech", R"({"model":"far/away"})").status, 200);
}

TEST_F(ProxyHandlers, FormsNameModelsToo) {
  start_echo();
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nfar\r\n--b--\r\n";
  EXPECT_EQ(call("POST",
                 "/v1/audio/transcriptions",
                 form,
                 "Content-Type: multipart/form-data; boundary=b\r\n")
                .body,
            "POST /v1/audio/transcriptions");
  EXPECT_TRUE(engine->requests().at(0).ends_with("\r\n\r\n" + form));
}

TEST_F(ProxyHandlers, FilterBodies) {
  engine_config().served_name = "model.gguf";
  engine_config().filters.strip_params = {"temperature"};
  start_echo();
  call("POST", "/v1/completions", R"({"temperature": 1, "model": "far", "x":1})");
  EXPECT_TRUE(engine->requests().at(0).ends_with("\r\n\r\n{\"model\": \"model.gguf\", \"x\":1}"));
}

TEST_F(ProxyHandlers, OpenAllOfAnEngineUnderItsName) {
  config.models.push_back({.id = "far/away/too"});
  config.models.back().engine.emplace();
  serving.names.emplace_back("far/away/too");
  start_echo();
  EXPECT_EQ(call("GET", "/upstream/far/away/props?a=%2F").body, "GET /props?a=%2F");
  EXPECT_EQ(call("GET", "/upstream/far%2Faway/a%20b/c").body, "GET /a%20b/c");
  EXPECT_EQ(call("PUT", "/upstream/far/v1/files/3", "x").body, "PUT /v1/files/3");
  EXPECT_EQ(call("DELETE", "/upstream/far/").body, "DELETE /");
  EXPECT_EQ(call("GET", "/upstream/far/away/too/x").body, "GET /x");
  EXPECT_EQ(serving.forwarded.back()->model, ModelId(4));
  EXPECT_EQ(call("HEAD", "/upstream/far/page").status, 200);
  EXPECT_THAT(engine->requests().back(), StartsWith("HEAD /page "));
  const TestResponse moved = call("GET", "/upstream/far/away?x=1");
  EXPECT_EQ(moved.status, 308);
  EXPECT_EQ(moved.headers.at("location"), "/upstream/far/away/?x=1");
}

TEST_F(ProxyHandlers, SayThatWebSocketsAreNotForwarded) {
  start_echo();
  const TestResponse refused =
      call("GET", "/upstream/far/ws", "", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
  EXPECT_EQ(refused.status, 501);
  EXPECT_THAT(refused.body, HasSubstr("WebSocket"));
  EXPECT_EQ(engine->connections(), 0);
}

TEST_F(ProxyHandlers, FailInTheFormOfTheApi) {
  start_echo();
  EXPECT_THAT(call("POST",
                   "/v1/messages/count_tokens",
                   R"({"model":"nobody","messages":[{"role":"user","content":"hi"}]})")
                  .body,
              StartsWith(R"({"type":"error","error":{"type":"not_found_error","message":)"));
  EXPECT_THAT(call("GET", "/v1/messages").body,
              StartsWith(R"({"type":"error","error":{"type":"invalid_request_error")"));
  EXPECT_THAT(call("POST", "/pooling", R"({"model":"nobody"})").body,
              StartsWith(R"({"error":{"message":)"));
}

TEST_F(ProxyHandlers, KeepOurKeysToThemselves) {
  config.api_keys = {{.key = "secret"}};
  start_echo();
  EXPECT_EQ(call("POST", "/v1/completions", R"({"model":"far"})").status, 401);
  EXPECT_EQ(call("GET", "/upstream/far/x").status, 401);
  EXPECT_EQ(engine->connections(), 0);
  call("POST",
       "/v1/completions",
       R"({"model":"far"})",
       "Authorization: Bearer secret\r\nX-Api-Key: secret\r\nX-Other: 1\r\n");
  EXPECT_THAT(engine->requests().at(0), Not(HasSubstr("secret")));
  EXPECT_THAT(engine->requests().at(0), HasSubstr("X-Other: 1\r\n"));
}

TEST_F(ProxyHandlers, PassOnKeysThatAreNotOurs) {
  start_echo();
  call("POST", "/v1/completions", R"({"model":"far"})", "Authorization: Bearer theirs\r\n");
  EXPECT_THAT(engine->requests().at(0), HasSubstr("Authorization: Bearer theirs\r\n"));
}

TEST_F(ProxyHandlers, PriorityIsWhatWasAskedWithinWhatTheKeyMay) {
  config.api_keys = {{.key = "low", .priority = 2}};
  start_echo();
  const std::string key = "Authorization: Bearer low\r\n";
  call("POST", "/v1/completions", R"({"model":"far","priority":5})", key);
  call("POST", "/v1/completions", R"({"model":"far","priority":-5})", key);
  EXPECT_EQ(serving.forwarded.at(0)->priority, 5);
  EXPECT_EQ(serving.forwarded.at(1)->priority, 2);
}

}  // namespace
}  // namespace heddle::gateway
