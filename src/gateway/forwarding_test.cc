#include "gateway/forwarding.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/forwarded_request.h"
#include "gateway/test_forwarding.h"

namespace heddle::gateway {
namespace {

using testing::HasSubstr;
using testing::Not;
using Peer = FakeEngine::Peer;

TEST_F(ForwardingTest, AnswersComeBackAsTheyAre) {
  std::string bytes;
  for (int i = 0; i < 70'000; ++i) {
    bytes += static_cast<char>(i * 7 % 256);
  }
  start_with([&](const Peer& peer, const std::string&) {
    return peer.answer(bytes,
                       "Content-Type: application/x\r\nContent-Encoding: gzip\r\nx-Odd: a:b\r\n"
                       "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: them\r\n"
                       "Keep-Alive: timeout=5\r\n",
                       "418 Short And Stout");
  });
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions?x=%20y", chat()));
  const TestResponse head = client.read_head();
  EXPECT_EQ(head.status, 418);
  EXPECT_EQ(head.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(head.headers.at("content-length"), "70000");
  EXPECT_EQ(head.headers.at("x-odd"), "a:b");
  EXPECT_EQ(head.headers.at("set-cookie"), "b=2");
  EXPECT_EQ(head.headers.at("server"), "them");
  EXPECT_FALSE(head.headers.contains("keep-alive"));
  EXPECT_FALSE(head.headers.contains("transfer-encoding"));
  client.hang_up();
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat()).body, bytes);
  EXPECT_THAT(engine->requests().at(0),
              testing::StartsWith("POST /v1/chat/completions?x=%20y HTTP/1.1\r\n"));
  EXPECT_TRUE(engine->requests().at(0).ends_with("\r\n\r\n" + chat()));
}

TEST_F(ForwardingTest, ChunksAndEventsComeBackAsTheyAre) {
  const std::string events =
      "data: {\"a\":1}\n\n: ping\n\nevent: x\r\ndata: two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n";
  start_with([&](const Peer& peer, const std::string&) {
    peer.send(kStreamHead);
    for (std::size_t at = 0; at < events.size(); at += 5) {
      peer.send(chunk(events.substr(at, 5)));
    }
    return peer.send("0\r\n\r\n");
  });
  for (int i = 0; i < 2; ++i) {
    const TestResponse answer = call("POST", "/v1/chat/completions", chat(true));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_EQ(answer.headers.at("x-accel-buffering"), "no");
    EXPECT_EQ(answer.body, events);
  }
  EXPECT_EQ(engine->connections(), 1);
  EXPECT_TRUE(finished(2));
}

TEST_F(ForwardingTest, ARedirectToTheEngineLeadsToItByWayOfUs) {
  std::string location;
  start_with([&](const Peer& peer, const std::string&) {
    return peer.answer("there", "Location: " + location + "\r\n", "307 Temporary Redirect");
  });
  for (const std::string& own :
       {std::string("/ui/next?a=b"),
        std::string("next?a=b"),
        "http://127.0.0.1:" + std::to_string(engine->port()) + "/ui/next?a=b"}) {
    location = own;
    const TestResponse moved = call("GET", "/upstream/far/ui/page");
    EXPECT_EQ(moved.status, 307);
    EXPECT_EQ(moved.headers.at("location"), "/upstream/far/away/ui/next?a=b") << own;
    EXPECT_EQ(moved.body, "there");
  }
  location = "/v1/elsewhere";
  const TestResponse moved = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(moved.headers.at("location"), "/upstream/far/away/v1/elsewhere");
}

TEST_F(ForwardingTest, ARedirectToAnotherPlaceIsABadGateway) {
  std::string location;
  std::string status = "302 Found";
  start_with([&](const Peer& peer, const std::string&) {
    return peer.answer("there", "Location: " + location + "\r\nX-Mine: 1\r\n", status);
  });
  for (const char* other : {"http://169.254.169.254/latest",
                            "http://127.0.0.1:1/x",
                            "//evil.example/",
                            "file:///etc"}) {
    location = other;
    const TestResponse refused = call("POST", "/v1/chat/completions", chat());
    EXPECT_EQ(refused.status, 502) << other;
    EXPECT_FALSE(refused.headers.contains("location"));
    EXPECT_FALSE(refused.headers.contains("x-mine"));
    EXPECT_THAT(refused.body, HasSubstr("redirects to another place"));
  }
  EXPECT_EQ(engine->requests().size(), 4U) << "it is not asked again";
  status = "201 Created";
  const TestResponse made = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(made.status, 201);
  EXPECT_FALSE(made.headers.contains("location"));
  EXPECT_EQ(made.body, "there");
}

TEST_F(ForwardingTest, PartsAreNotHeldBack) {
  std::promise<void> read;
  start_with([&](const Peer& peer, const std::string&) {
    peer.send(kStreamHead + chunk("data: 1\n\n"));
    read.get_future().wait();
    return peer.send(chunk("data: 2\n\n") + "0\r\n\r\n");
  });
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_EQ(client.read_chunk(), "data: 1\n\n");
  read.set_value();
  EXPECT_EQ(client.read_chunk(), "data: 2\n\n");
}

// The engine may write no more than what fits the buffers of the two connections between it and a
// client that takes nothing.
TEST_F(ForwardingTest, ReadsNoFasterThanTheClient) {
  constexpr std::size_t kPieces = 4096;
  std::atomic<std::size_t> sent = 0;
  const std::string piece(65536, 'x');
  start_with([&](const Peer& peer, const std::string&) {
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kPieces * piece.size()) +
              "\r\n\r\n");
    for (std::size_t i = 0; i < kPieces && peer.send(piece); ++i) {
      ++sent;
    }
    return false;
  });
  TestClient client(port, 4096);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat()));
  EXPECT_EQ(client.read_head().status, 200);
  // Until the engine's writing stands still.
  for (std::size_t before = 1, now = 0; before != now;) {
    before = now;
    std::this_thread::sleep_for(200ms);
    now = sent;
  }
  EXPECT_LT(sent, kPieces / 4);
  client.hang_up();
  EXPECT_TRUE(finished());
  engine.reset();  // Its thread may still be sending a piece.
}

TEST_F(ForwardingTest, AClientThatHangsUpEndsTheExchange) {
  std::promise<bool> hung_up;
  start_with([&](const Peer& peer, const std::string&) {
    peer.send(kStreamHead + chunk("data: 1\n\n"));
    hung_up.set_value(peer.hung_up());
    return false;
  });
  {
    TestClient client(port);
    client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
    EXPECT_EQ(client.read_head().status, 200);
  }
  EXPECT_TRUE(hung_up.get_future().get());
  EXPECT_TRUE(finished());
}

TEST_F(ForwardingTest, AClientThatHangsUpBeforeTheAnswerEndsTheExchange) {
  std::promise<void> asked;
  std::promise<bool> hung_up;
  start_with([&](const Peer& peer, const std::string&) {
    asked.set_value();
    hung_up.set_value(peer.hung_up());
    return false;
  });
  {
    TestClient client(port);
    client.send(TestClient::request("POST", "/v1/chat/completions", chat()));
    asked.get_future().wait();
  }
  EXPECT_TRUE(hung_up.get_future().get());
  EXPECT_TRUE(finished());
}

TEST_F(ForwardingTest, AClientThatHangsUpWhileItWaitsCancels) {
  start_with([](const Peer&, const std::string&) { return false; }, /*waits=*/true);
  {
    TestClient client(port);
    client.send(TestClient::request("POST", "/v1/chat/completions", chat()));
    ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 1; }));
  }
  EXPECT_TRUE(serving.wait([&] { return serving.cancelled.size() == 1; }));
  EXPECT_TRUE(serving.finished_external.empty());
}

TEST_F(ForwardingTest, WaitsForTheEngine) {
  start_with([](const Peer& peer, const std::string&) { return peer.answer("{\"a\":1}"); },
             /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat()));
  ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 1; }));
  on_loop([&] {
    serving.external_sink()->on_waiting(1s);
    serving.engine = address();
    serving.tell_all_ready();
  });
  const TestResponse answer = client.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"a\":1}");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
}

TEST_F(ForwardingTest, StreamsAreToldThatTheyWait) {
  options.comment_interval = 5ms;
  start_with(
      [&](const Peer& peer, const std::string&) {
        return peer.send(kStreamHead + chunk("data: 1\n\n") + "0\r\n\r\n");
      },
      /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
  EXPECT_EQ(client.read_head().headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(client.read_chunk(), ": waiting for far/away\n\n");
  EXPECT_EQ(client.read_chunk(), ": waiting for far/away\n\n");
  on_loop([&] {
    serving.engine = address();
    serving.tell_all_ready();
  });
  std::string data;
  do {
    data = client.read_chunk();
  } while (data.starts_with(":"));
  EXPECT_EQ(data, "data: 1\n\n");
  EXPECT_EQ(client.read_chunk(), "");
}

TEST_F(ForwardingTest, StreamsUnderUpstreamAreToldThatTheyWaitWhereTheyAreOfEvents) {
  options.comment_interval = 5ms;
  start_with([](const Peer& peer, const std::string&) { return peer.answer("{}"); },
             /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/upstream/far/away/v1/chat/completions", chat(true)));
  EXPECT_EQ(client.read_head().headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(client.read_chunk(), ": waiting for far/away\n\n");
  TestClient other(port);
  other.send(TestClient::request("POST", "/upstream/far/away/api/chat", chat(true)));
  ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 2; }));
  on_loop([&] {
    serving.engine = address();
    serving.tell_all_ready();
  });
  EXPECT_EQ(other.read().body, "{}");
}

TEST_F(ForwardingTest, AnErrorAfterCommentsIsAnEvent) {
  options.comment_interval = 5ms;
  start_with(
      [&](const Peer& peer, const std::string&) {
        return peer.answer("{\"error\":\n{\"message\":\"bad\"}}", "", "400 Bad Request");
      },
      /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
  client.read_head();
  EXPECT_EQ(client.read_chunk(), ": waiting for far/away\n\n");
  on_loop([&] {
    serving.engine = address();
    serving.tell_all_ready();
  });
  std::string all;
  for (std::string part = client.read_chunk(); !part.empty(); part = client.read_chunk()) {
    all += part;
  }
  EXPECT_THAT(all,
              testing::EndsWith("data: {\"error\": {\"message\":\"bad\"}}\n\ndata: [DONE]\n\n"));
}

TEST_F(ForwardingTest, AnErrorBeforeCommentsIsTheEnginesOwn) {
  start_with([](const Peer& peer, const std::string&) {
    return peer.answer("no", "Content-Type: text/plain\r\nRetry-After: 7\r\n", "503 Busy");
  });
  const TestResponse answer = call("POST", "/v1/completions", chat(true));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "no");
  EXPECT_EQ(answer.headers.at("retry-after"), "7");
}

TEST_F(ForwardingTest, TellsOfLoadingInTheReasoningOfChats) {
  engine_config().loading_state = true;
  start_with(
      [&](const Peer& peer, const std::string&) {
        return peer.send(kStreamHead + chunk("data: 1\n\n") + "0\r\n\r\n");
      },
      /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
  ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 1; }));
  on_loop([&] { serving.external_sink()->on_waiting(0s); });
  client.read_head();
  const std::string first = client.read_chunk();
  ASSERT_TRUE(first.starts_with("data: ")) << first;
  const auto event = nlohmann::json::parse(first.substr(6));
  EXPECT_EQ(event["object"], "chat.completion.chunk");
  EXPECT_EQ(event["model"], "far");
  EXPECT_THAT(event["choices"][0]["delta"]["reasoning_content"].get<std::string>(),
              HasSubstr("loading far/away"));
  on_loop([&] {
    serving.engine = address();
    serving.tell_all_ready();
  });
  EXPECT_THAT(client.read_chunk(), HasSubstr("ready after"));
  EXPECT_EQ(client.read_chunk(), "data: 1\n\n");
}

TEST_F(ForwardingTest, AnEngineThatCannotBeReachedIsAskedAgain) {
  std::atomic<int> turn = 0;
  start_with([&turn](const Peer& peer, const std::string&) {
    if (turn++ < 2) {
      peer.reset();
      return false;
    }
    return peer.answer("{}");
  });
  EXPECT_EQ(call("POST", "/v1/chat/completions", chat()).body, "{}");
  EXPECT_EQ(serving.retries, 2);
}

TEST_F(ForwardingTest, AnEngineThatIsNeverReachedFailsTheRequest) {
  serving.retries_max = 1;
  start_with([](const Peer&, const std::string&) { return false; });
  const TestResponse answer = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the engine does not run"));
  EXPECT_TRUE(answer.headers.contains("retry-after"));
}

// The head alone does not count as an answer: the client has not seen it.
TEST_F(ForwardingTest, ARequestIsForwardedAgainWhenItsEngineDies) {
  std::atomic<int> turn = 0;
  std::promise<void> asked;
  start_with([&](const Peer& peer, const std::string&) {
    if (turn++ == 0) {
      peer.send(kStreamHead);
      asked.set_value();
      return !peer.hung_up();
    }
    return peer.send(kStreamHead + chunk("data: 1\n\n") + "0\r\n\r\n");
  });
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat(true)));
  asked.get_future().wait();
  on_loop([&] {
    serving.external_sink()->on_lost({.code = Code::kUnavailable, .message = "killed"});
    serving.tell_all_ready();
  });
  const TestResponse answer = client.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "data: 1\n\n");
  EXPECT_EQ(serving.retries, 0);
  ASSERT_EQ(engine->requests().size(), 2U);
  EXPECT_EQ(engine->requests()[0], engine->requests()[1]);
}

TEST_F(ForwardingTest, AStreamWhoseEngineDiesEndsWithAnError) {
  start_with([&](const Peer& peer, const std::string&) {
    peer.send(kStreamHead + chunk("data: 1\n\n") + chunk("data: {\"ha"));
    return false;
  });
  const TestResponse answer = call("POST", "/v1/chat/completions", chat(true));
  EXPECT_THAT(answer.body, testing::StartsWith("data: 1\n\ndata: {\"ha\n\ndata: {\"error\":{"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(serving.retries, 0);
}

TEST_F(ForwardingTest, AnAnswerWhoseEngineDiesIsNotPassedForWhole) {
  start_with([&](const Peer& peer, const std::string&) {
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    return false;
  });
  TestClient client(port);
  const TestResponse answer = client.call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.headers.at("content-length"), "100");
  EXPECT_EQ(answer.body, "half");
  EXPECT_TRUE(client.closed());
}

TEST_F(ForwardingTest, AnEngineThatIsTooSlowTimesOut) {
  engine_config().response_timeout = 20ms;
  start_with([](const Peer& peer, const std::string&) { return !peer.hung_up(); });
  const TestResponse answer = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, HasSubstr("began no answer within 20.0 ms"));
}

TEST_F(ForwardingTest, AnEngineThatDoesNotComeUpTimesOut) {
  config.limits.load_timeout = 20ms;
  config.limits.load_timeout_given = true;
  start_with([](const Peer&, const std::string&) { return false; }, /*waits=*/true);
  const TestResponse answer = call("POST", "/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, HasSubstr("limits.load_timeout"));
}

TEST_F(ForwardingTest, TooManyAtOnceAreTurnedAway) {
  config.models.back().concurrency_limit = 1;
  start_with([](const Peer&, const std::string&) { return false; }, /*waits=*/true);
  TestClient first(port);
  first.send(TestClient::request("POST", "/v1/chat/completions", chat()));
  ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 1; }));
  const TestResponse second = call("POST", "/v1/chat/completions", chat(true));
  EXPECT_EQ(second.status, 429);
  EXPECT_TRUE(second.headers.contains("retry-after"));
  EXPECT_EQ(nlohmann::json::parse(second.body)["error"]["code"], "concurrency_limit");
}

TEST_F(ForwardingTest, DrainingEndsWhatWaits) {
  start_with([](const Peer&, const std::string&) { return false; }, /*waits=*/true);
  TestClient client(port);
  client.send(TestClient::request("POST", "/v1/chat/completions", chat()));
  ASSERT_TRUE(serving.wait([&] { return serving.forwarded.size() == 1; }));
  on_loop([&] { gateway->drain(0s, [] {}); });
  EXPECT_EQ(client.read().status, 503);
}

TEST_F(ForwardingTest, StoriesAndMetricsTellOfIt) {
  start_with([](const Peer& peer, const std::string&) {
    return peer.answer(R"({"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34}})");
  });
  call("POST", "/v1/chat/completions", chat(), "X-Request-Id: mine\r\n");
  ASSERT_TRUE(finished());
  const nlohmann::json trace = ask("GET", "/api/requests/mine");
  EXPECT_EQ(trace["model"], "far/away");
  EXPECT_EQ(trace["status"], 200);
  EXPECT_EQ(trace["running"], false);
  EXPECT_EQ(trace["parts"][0]["prompt_tokens"], 12);
  EXPECT_EQ(trace["parts"][0]["completion_tokens"], 34);
  EXPECT_EQ(trace["parts"][0]["device"], "cpu0");
  EXPECT_TRUE(trace["parts"][0]["phases"]["prefill_ms"].is_number());
  const std::string text = call("GET", "/metrics").body;
  EXPECT_THAT(text,
              HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"far/away\"} 34"));
  EXPECT_THAT(
      text,
      HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"far/away\"} 1"));
  EXPECT_THAT(engine->requests().at(0), HasSubstr("X-Request-Id: mine\r\n"));
}

TEST(LoadLimit, IsThatOfTheEnginesStartUnlessTheUserSaysOtherwise) {
  using namespace std::chrono_literals;
  config::EngineConfig engine;
  engine.start_timeout = 2min;
  EXPECT_EQ(load_limit({}, engine), 5min);
  engine.start_timeout = 10min;
  EXPECT_EQ(load_limit({}, engine), 10min);
  EXPECT_EQ(load_limit({.load_timeout = 30s, .load_timeout_given = true}, engine), 30s);
  EXPECT_EQ(load_limit({.load_timeout = 5min, .load_timeout_given = true}, engine), 5min);
}

}  // namespace
}  // namespace heddle::gateway
