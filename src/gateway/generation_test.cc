#include "gateway/generation.h"

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class GenerationTest : public GatewayTest {
 protected:
  static std::string chat(const std::string& more) {
    return TestClient::request("POST", "/v1/chat/completions", chat_body(more));
  }
};

TEST_F(GenerationTest, AWholeAnswer) {
  serving.reply = "h\xc3\xa9llo";
  start();
  const TestResponse response =
      call("POST", "/v1/chat/completions", chat_body(), "X-Request-Id: mine-1\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("x-request-id"), "mine-1");
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "h\xc3\xa9llo");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 9) << "user: hi and a line break";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 7) << "six bytes and the end of turn";
}

TEST_F(GenerationTest, AStreamOfWholeCharacters) {
  serving.reply = "a\xf0\x9f\x98\x80";
  start();
  const TestResponse response =
      call("POST",
           "/v1/chat/completions",
           chat_body(R"("stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(response.headers.at("x-accel-buffering"), "no");
  const std::vector<std::string> events = events_of(response.body);
  ASSERT_GE(events.size(), 5U);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events.front())["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  json finish;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const json chunk = json::parse(events[i]);
    EXPECT_TRUE(chunk["usage"].is_null());
    text += chunk["choices"][0]["delta"].value("content", "");
    finish = chunk["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(text, "a\xf0\x9f\x98\x80");
  EXPECT_EQ(finish, "stop");
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 6);
}

TEST_F(GenerationTest, AStopStringEndsTheTextBeforeItAndTellsTheEngine) {
  serving.reply = "one two three";
  start();
  const json answer =
      json::parse(call("POST", "/v1/chat/completions", chat_body(R"("stop":[" th","zzz"])")).body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "one two");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(serving.wait([&] { return serving.finished_choices.size() == 1; }));
}

TEST_F(GenerationTest, TheLengthEndsIt) {
  serving.reply = "abcdef";
  start();
  const json answer =
      json::parse(call("POST", "/v1/chat/completions", chat_body(R"("max_tokens":3)")).body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "abc");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST_F(GenerationTest, SeveralChoicesAreToldApart) {
  serving.reply = "xy";
  start();
  const json whole = json::parse(call("POST", "/v1/chat/completions", chat_body(R"("n":3)")).body);
  ASSERT_EQ(whole["choices"].size(), 3U);
  EXPECT_EQ(whole["choices"][2]["index"], 2);
  EXPECT_EQ(whole["choices"][2]["message"]["content"], "xy");
  const auto events =
      events_of(call("POST", "/v1/chat/completions", chat_body(R"("n":2,"stream":true)")).body);
  std::map<int, std::string> texts;
  for (const std::string& event : events) {
    if (event != "[DONE]") {
      const json choice = json::parse(event)["choices"][0];
      texts[choice["index"].get<int>()] += choice["delta"].value("content", "");
    }
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "xy"}, {1, "xy"}}));
}

TEST_F(GenerationTest, AFailureBeforeTheFirstTokenHasItsStatus) {
  serving.failure = Error{.code = Code::kUnavailable, .message = "weights are gone"};
  start();
  for (const char* stream : {"false", "true"}) {
    const TestResponse response =
        call("POST", "/v1/chat/completions", chat_body(R"("stream":)" + std::string(stream)));
    EXPECT_EQ(response.status, 503) << stream;
    EXPECT_TRUE(response.headers.contains("retry-after"));
    EXPECT_EQ(json::parse(response.body)["error"]["message"], "weights are gone");
  }
}

TEST_F(GenerationTest, AFailureInTheMiddleIsAnEvent) {
  serving.reply.reset();
  start();
  TestClient client(port);
  client.send(chat(R"("stream":true)"));
  ASSERT_TRUE(serving.wait([&] { return serving.started.size() == 1; }));
  const RequestId id = serving.started[0]->id;
  on_loop([&] { serving.emit(id, 0, {'a'}); });
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_THAT(client.read_chunk(), HasSubstr("\"a\""));
  on_loop([&] {
    serving.sink(id)->on_error({.code = Code::kDeadlineExceeded, .message = "too late"});
  });
  const std::string last = client.read_chunk();
  EXPECT_THAT(last, HasSubstr(R"("message":"too late")"));
  EXPECT_THAT(last, HasSubstr("data: [DONE]"));
  EXPECT_EQ(client.read_chunk(), "") << "and the stream ends properly";
}

TEST_F(GenerationTest, CommentsKeepAWaitingStreamAlive) {
  serving.reply.reset();
  options.comment_interval = std::chrono::milliseconds(10);
  start();
  TestClient client(port);
  client.send(chat(R"("stream":true)"));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_THAT(client.read_chunk(), HasSubstr(": waiting for tiny"));
  ASSERT_TRUE(serving.wait([&] { return serving.started.size() == 1; }));
  on_loop([&] { serving.sink(serving.started[0]->id)->on_loading(1U << 20U, 4U << 20U); });
  std::string comment = client.read_chunk();
  for (int i = 0; i < 1000 && comment.find("loading") == std::string::npos; ++i) {
    comment = client.read_chunk();
  }
  EXPECT_EQ(comment, ": loading tiny: 1.00 MiB of 4.00 MiB\n\n");
}

TEST_F(GenerationTest, AClientThatHangsUpWhileItWaitsIsCancelled) {
  serving.reply.reset();
  start();
  for (const char* stream : {R"("stream":false)", R"("stream":true)"}) {
    TestClient client(port);
    client.send(chat(stream));
    const std::size_t before = serving.cancelled.size();
    ASSERT_TRUE(serving.wait([&] { return serving.started.size() == before + 1; }));
    client.hang_up();
    EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == before + 1; })) << stream;
  }
  TestClient client(port);
  const json trace = json::parse(client.call("GET", "/api/requests").body)["requests"][0];
  EXPECT_EQ(trace["status"], 499);
  EXPECT_EQ(trace["running"], false);
}

TEST_F(GenerationTest, AClientThatHangsUpInTheStreamIsCancelled) {
  serving.endless = true;
  start();
  TestClient client(port);
  client.send(chat(R"("stream":true,"ignore_eos":true)"));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_THAT(client.read_chunk(), HasSubstr("assistant"));
  client.hang_up();
  EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
}

TEST_F(GenerationTest, ARequestSentWhileAnotherIsAnsweredIsAnsweredNext) {
  serving.reply.reset();
  start();
  TestClient client(port);
  client.send(chat(R"("stream":false)"));
  ASSERT_TRUE(serving.wait([&] { return serving.started.size() == 1; }));
  client.send(TestClient::request("GET", "/version"));
  for (int i = 0; i < 3; ++i) {
    on_loop([] {});  // The loop looks at its sockets between these, so it has read the request.
  }
  on_loop([&] { serving.emit(serving.started[0]->id, 0, {'x', FakeServing::kEos}); });
  EXPECT_THAT(client.read().body, HasSubstr("\"x\""));
  EXPECT_THAT(client.read().body, HasSubstr("1.2.3"));
  EXPECT_TRUE(serving.cancelled.empty()) << "it did not hang up";
}

TEST_F(GenerationTest, ASlowClientIsGivenUpAndHoldsNobodyUp) {
  serving.endless = true;
  options.backlog_max = 1000;
  start();
  TestClient slow(port, /*receive_buffer=*/4096);
  slow.send(chat(R"("stream":true)"));  // And reads nothing.
  EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
  EXPECT_EQ(call("GET", "/health").status, 200);
}

TEST_F(GenerationTest, AnAnswerThatTakesTooLongFails) {
  serving.reply.reset();
  config.limits.request_timeout = std::chrono::milliseconds(20);
  start();
  const TestResponse response = call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(response.status, 504);
  EXPECT_THAT(response.body, HasSubstr("limits.request_timeout"));
  EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
}

TEST_F(GenerationTest, AModelThatDoesNotComeFails) {
  serving.reply.reset();
  config.limits.load_timeout = std::chrono::milliseconds(20);
  start();
  const TestResponse response = call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(response.status, 504);
  EXPECT_THAT(response.body, HasSubstr("limits.load_timeout"));
}

TEST_F(GenerationTest, Http10GetsAStreamWithoutChunks) {
  serving.reply = "ok";
  start();
  const std::string body = chat_body(R"("stream":true)");
  TestClient client(port);
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const TestResponse response = client.read();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(events_of(response.body).back(), "[DONE]");
}

TEST_F(GenerationTest, TheStoryIsTold) {
  serving.reply = "abc";
  start();
  const TestResponse response = call(
      "POST", "/v1/chat/completions", chat_body(R"("max_tokens":2)"), "X-Request-Id: tale\r\n");
  const std::string answer_id = json::parse(response.body)["id"];
  for (const std::string& id : {std::string("tale"), answer_id}) {
    const json trace = json::parse(call("GET", "/api/requests/" + id).body);
    EXPECT_EQ(trace["id"], "tale");
    EXPECT_EQ(trace["status"], 200);
    EXPECT_EQ(trace["model"], "tiny");
    EXPECT_EQ(trace["parts"][0]["device"], "cpu0");
    EXPECT_EQ(trace["parts"][0]["completion_tokens"], 2);
    EXPECT_EQ(trace["parts"][0]["finish_reasons"], json::array({"length"}));
    EXPECT_TRUE(trace["parts"][0]["phases"]["total_ms"].is_number());
  }
  EXPECT_EQ(call("GET", "/api/requests/none").status, 404);
}

}  // namespace
}  // namespace heddle::gateway
