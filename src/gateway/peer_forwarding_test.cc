#include "gateway/peer_forwarding.h"

#include <gmock/gmock.h>

#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Script = FakeEngine::Peer;

class PeerForwardingTest : public GatewayTest {
 protected:
  /// Starts a peer with this script that has the models "big" and "org/small", and the gateway.
  void start_with(FakeEngine::Script script, const std::string& key = "theirs") {
    peer = std::make_unique<FakeEngine>(std::move(script));
    config.peers = {{.name = "hosted",
                     .address = {.host = "127.0.0.1", .port = peer->port(), .base_path = "/base"},
                     .api_key = key,
                     .models = {"big", "org/small"}}};
    config.peers[0].filters.strip_params = {"top_k"};
    config.peers[0].filters.set_params = {{"provider", R"({"zdr":true})"}};
    start();
  }
  /// The peer says what it was asked.
  void start_echo() {
    start_with(
        [](const Script& asked, const std::string& request) { return asked.answer(request); });
  }
  static std::string chat(const std::string& more = "") {
    return R"({"model":"big","top_k":7,"messages":[])" + more + "}";
  }

  std::unique_ptr<FakeEngine> peer{};
};

TEST_F(PeerForwardingTest, ThePeersNameMayStandBeforeItsModels) {
  start_echo();
  for (const char* name : {"hosted/big", "hosted/org/small"}) {
    const std::string body = R"({"model":")" + std::string(name) + R"(","messages":[]})";
    const std::string bare = std::string(name).substr(7);
    EXPECT_THAT(call("POST", "/v1/chat/completions", body).body,
                HasSubstr(R"("model":")" + bare + "\""));
    EXPECT_THAT(call("POST", "/v1/rerank", body).body, HasSubstr(R"("model":")" + bare + "\""));
  }
  EXPECT_EQ(call("POST",
                 "/v1/chat/completions",
                 R"({"model":"other/big","messages":[{"role":"user","content":"x"}]})")
                .status,
            404);
}

TEST_F(PeerForwardingTest, ThePeerGetsItsKeyAndNoneOfOurs) {
  config.api_keys = {{.key = "ours"}};
  start_echo();
  const std::string asked =
      call("POST",
           "/v1/chat/completions",
           chat(),
           "Authorization: Bearer ours\r\nCookie: session=1\r\nX-Custom: kept\r\n"
           "x-request-id: mine\r\nOrigin: http://127.0.0.1\r\n")
          .body;
  EXPECT_THAT(asked, HasSubstr("POST /base/v1/chat/completions HTTP/1.1\r\n"));
  EXPECT_THAT(asked, HasSubstr("Authorization: Bearer theirs\r\n"));
  EXPECT_THAT(asked, HasSubstr("x-api-key: theirs\r\n"));
  EXPECT_THAT(asked, HasSubstr("X-Custom: kept\r\n"));
  EXPECT_THAT(asked, HasSubstr("X-Request-Id: mine\r\n"));
  EXPECT_THAT(asked, Not(HasSubstr("ours")));
  EXPECT_THAT(asked, Not(HasSubstr("session=1")));
  EXPECT_THAT(asked, Not(HasSubstr("Origin")));
  EXPECT_THAT(asked, HasSubstr(R"({"model":"big","messages":[],"provider":{"zdr":true}})"));
}

TEST_F(PeerForwardingTest, WithoutAKeyNoneIsSent) {
  start_with([](const Script& asked, const std::string& request) { return asked.answer(request); },
             "");
  const std::string asked = call("POST", "/v1/chat/completions", chat(), "x-api-key: any\r\n").body;
  EXPECT_THAT(asked, Not(HasSubstr("uthorization")));
  EXPECT_THAT(asked, Not(HasSubstr("x-api-key")));
}

TEST_F(PeerForwardingTest, ModelsOfPeersAreListedAndOursStayOurs) {
  start_echo();
  serving.reply = "hello";
  std::vector<std::string> names;
  const json listed = ask("GET", "/v1/models");
  for (const json& model : listed["data"]) {
    names.push_back(model["id"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"tiny", "org/name:8b", "big", "org/small"}));
  EXPECT_EQ(ask("GET", "/v1/models/org/small")["id"], "org/small");
  EXPECT_EQ(ask("POST", "/v1/chat/completions", chat_body())["choices"][0]["message"]["content"],
            "hello");
  EXPECT_EQ(peer->connections(), 0);
  EXPECT_EQ(call("POST", "/v1/chat/completions", R"({"model":"none"})").status, 400);
}

TEST_F(PeerForwardingTest, EveryPathThatNamesAModelIsForwarded) {
  start_with([](const Script& asked, const std::string& request) {
    return asked.answer(request.substr(0, request.find(" HTTP")));
  });
  for (const char* path :
       {"/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/v1/rerank", "/api/chat"}) {
    EXPECT_EQ(call("POST", path, R"({"model":"org/small"})").body,
              "POST /base" + std::string(path));
  }
}

TEST_F(PeerForwardingTest, ErrorsAndHeadersOfThePeerPassThrough) {
  start_with([](const Script& asked, const std::string&) {
    return asked.send(
        "HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nX-Theirs: yes\r\n"
        "Access-Control-Allow-Origin: *\r\nContent-Length: 4\r\n\r\nbusy");
  });
  const TestResponse answer = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, "busy");
  EXPECT_EQ(answer.headers.at("retry-after"), "7");
  EXPECT_EQ(answer.headers.at("x-theirs"), "yes");
  EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
}

TEST_F(PeerForwardingTest, AStreamIsPassedOnByteByByteAndCounted) {
  const std::string event =
      "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n";
  start_with([&event](const Script& asked, const std::string&) {
    bool sent = asked.send(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    for (const char c : event) {
      sent = sent && asked.send(std::string("1\r\n") + c + "\r\n");
    }
    return sent && asked.send("0\r\n\r\n");
  });
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat(R"(,"stream":true)")).body, event);
  const json usage = ask("GET", "/api/usage")["usage"];
  ASSERT_EQ(usage.size(), 1U);
  EXPECT_EQ(usage[0]["model"], "big");
  EXPECT_EQ(usage[0]["completion_tokens"], 6);
}

TEST_F(PeerForwardingTest, WhatIsWrongWithThePeerIsSaid) {
  start_with([](const Script& asked, const std::string& request) {
    if (request.find("org/small") != std::string::npos) {
      return asked.send("HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n");
    }
    return asked.send("HTTP/1.1 200 OK\r\nContent-Le") && false;
  });
  const TestResponse cut = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(cut.status, 502);
  EXPECT_THAT(cut.body, HasSubstr("before its answer was whole"));
  const TestResponse moved = call("POST", "/v1/chat/completions", R"({"model":"org/small"})");
  EXPECT_EQ(moved.status, 502);
  EXPECT_THAT(moved.body, HasSubstr("redirects"));
  EXPECT_FALSE(moved.headers.contains("location"));
  peer.reset();
  const TestResponse away = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(away.status, 502);
  EXPECT_THAT(away.body, HasSubstr("connect to the peer"));
}

TEST_F(PeerForwardingTest, APeerThatSaysNothingIsGivenUp) {
  peer = std::make_unique<FakeEngine>(
      [](const Script& asked, const std::string&) { return asked.hung_up(); });
  config.peers = {{.name = "hosted",
                   .address = {.host = "127.0.0.1", .port = peer->port()},
                   .models = {"big"},
                   .response_timeout = 50ms}};
  start();
  const TestResponse answer = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 504);
}

}  // namespace
}  // namespace heddle::gateway
